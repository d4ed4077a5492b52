"""What the learnt score would have excluded, had it been allowed to, and how that turned out."""
