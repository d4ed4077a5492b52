"""Plug-in checks: programs of the user's that say whether something is well."""
