"""What every route gets without asking: entity tags, compression, idempotency keys, OpenAPI."""
