"""Models of gpuwarden: the simulator, recordings, and the training of the learnt score."""
