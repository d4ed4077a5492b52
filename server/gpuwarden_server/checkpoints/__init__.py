"""Checkpoints of jobs: found in history while a job runs, kept, and profiled."""
