"""Deletes what is older than it is to be kept, in small steps, and never what is live."""
