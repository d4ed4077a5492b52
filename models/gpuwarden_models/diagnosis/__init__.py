"""Simulated plants for the diagnosis: jobs slowed down by mechanics, not by what shows of them.

Each job goes step by step: its ranks fetch, compute and talk, and wait for the slowest of them.
Time and capacity follow from the parts; what is read of them follows from the time. Nothing here
knows a threshold of the diagnosis.
"""
