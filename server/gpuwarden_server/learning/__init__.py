"""The learnt model on the server: loaded with its hash checked, asked in every sweep."""
