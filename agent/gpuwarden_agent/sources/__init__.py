"""Thin adapters: the only code that touches a device or a kernel file."""
