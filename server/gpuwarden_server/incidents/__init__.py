"""Incidents as stored facts: reading them, and the one operator's word about them."""
