"""`gpuwarden-agent doctor`: what is readable, what is not and why, and the mend."""
