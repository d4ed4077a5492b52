"""From windows to verdict: pure, numpy only; time is always an argument."""
