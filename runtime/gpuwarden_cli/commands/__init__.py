"""Sub-commands, a file each; `register` puts them into the app."""
