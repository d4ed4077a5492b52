"""Rows of features as they served, kept so that models learn from exactly what judged."""
