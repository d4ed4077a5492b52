"""Decisions, the exclusion feed that carries them out, and the verdicts that show them."""
