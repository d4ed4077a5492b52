"""Which version of each model is in use, which challenges it, and where their files come from."""
