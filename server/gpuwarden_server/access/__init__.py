"""Who may do what: keys, roles, the authorisation table and the audit."""
