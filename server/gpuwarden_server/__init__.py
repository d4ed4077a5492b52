"""The gpuwarden server: takes what agents send, judges it, and answers who may be used."""
