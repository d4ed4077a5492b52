"""The contract between agent and server: metrics, readings, events, batches, acknowledgements."""
