"""Policy: from incidents to decisions, within the user's limits."""
