"""Whether the fleet still looks like what a model learnt from, and alarms come as often as then."""
