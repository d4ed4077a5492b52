"""Lanes: a queue and a thread for each address, and the channels that they speak."""
