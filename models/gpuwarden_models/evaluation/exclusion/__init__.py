"""Whom to exclude by its past alone: a benchmark on public records of two machines."""
