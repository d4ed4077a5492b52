"""How detectors are set: by people, and by an alarm budget that the fleet itself is held to."""
