"""Training jobs: where they ran, and how they ended."""
