"""The `gpuwarden` command. Server and training parts are loaded by name, when asked for."""
