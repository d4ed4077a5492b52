"""Rules that others use, as baselines: each tuned at the same budget on the same recordings."""
