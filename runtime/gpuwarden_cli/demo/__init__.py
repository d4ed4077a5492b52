"""`gpuwarden demo`: a whole gpuwarden on this machine, with a fleet that is played and a story."""
