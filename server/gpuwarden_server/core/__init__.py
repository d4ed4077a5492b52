"""What every part of the server stands on: clock, ids, problems, logs, meters."""
