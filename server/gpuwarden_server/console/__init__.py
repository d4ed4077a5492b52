"""The first page: one static file, no build step, nothing from elsewhere."""
