"""Other ways in than an agent: Prometheus' remote write, Alertmanager's webhook, plain events."""
