"""How the agent speaks with systemd."""
