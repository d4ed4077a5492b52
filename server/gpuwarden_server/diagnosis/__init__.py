"""Where a job or the fleet is slow: readings of all planes, asked together."""
