"""What other exporters say, as readings of ours: pure, text and tables only."""
