"""The two SQLite files and the threads that write them."""
