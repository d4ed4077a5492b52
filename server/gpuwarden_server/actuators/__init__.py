"""Acting outside: exclusions in force are carried into schedulers, files and hooks."""
