"""The pure judge: from events and windows to incidents and decisions, over values alone."""
