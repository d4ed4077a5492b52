"""Pins and planned leaves: people's standing words about nodes and GPUs."""
