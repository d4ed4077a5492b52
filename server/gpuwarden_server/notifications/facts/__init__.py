"""Facts that are told, from the judge's transaction to the planner."""
