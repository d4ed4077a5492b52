"""Notifications: who is told what, through which channel, once for one cause."""
