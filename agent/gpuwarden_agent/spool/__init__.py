"""The disk spool: what was collected stays here until the server has it for good."""
