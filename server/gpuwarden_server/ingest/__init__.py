"""The front door: batches in, acknowledgements out."""
