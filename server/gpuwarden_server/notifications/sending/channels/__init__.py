"""What each kind of endpoint speaks."""
