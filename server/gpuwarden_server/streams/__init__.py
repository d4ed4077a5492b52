"""Server-sent events of any kind: one hub and one handler, shared by all streams."""
