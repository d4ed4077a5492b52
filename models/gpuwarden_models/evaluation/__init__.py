"""How good verdicts are: protocol, baselines, budgets and the report of `gpuwarden evaluate`."""
