"""What other exporters on the node say, as readings of ours: pure, text and tables only."""
