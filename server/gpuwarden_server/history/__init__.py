"""History: the open minute, roll-ups, readings around incidents, and what charts read."""
