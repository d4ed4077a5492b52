"""Standard Webhooks: incidents and decisions told to one endpoint of the user's."""
