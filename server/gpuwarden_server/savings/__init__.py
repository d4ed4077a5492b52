"""The ledger of costs: what decisions saved and lost, and how often they were wrong."""
