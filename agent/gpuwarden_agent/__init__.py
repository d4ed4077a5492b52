"""The agent of a GPU node: collects, spools, ships, and keeps the local verdict file."""
