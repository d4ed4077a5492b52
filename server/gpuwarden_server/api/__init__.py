"""Reads that join several features: nodes, GPUs, verdicts, why, events, policy, fleet."""
