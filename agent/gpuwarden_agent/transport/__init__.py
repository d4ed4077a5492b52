"""Delivery of spooled batches to the server."""
