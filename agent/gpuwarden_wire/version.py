"""The one version of agent, server and command line."""

__version__ = "0.1.0"
