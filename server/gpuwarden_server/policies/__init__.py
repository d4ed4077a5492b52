"""Policies by version, and decisions judged again: what another policy would have done."""
