"""Plays what a fleet showed through the very judge that the server runs, on a clock of its own."""
