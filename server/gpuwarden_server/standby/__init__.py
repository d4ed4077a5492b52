"""Spares that stand by: the book in the store and its routes; the judge alone changes it."""
