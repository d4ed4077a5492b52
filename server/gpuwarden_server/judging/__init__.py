"""One serial worker that alone writes incidents, decisions, states and the exclusion feed."""
