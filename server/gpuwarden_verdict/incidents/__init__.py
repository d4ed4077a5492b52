"""Incidents: one open per entity and fault class, opened and closed on evidence."""
