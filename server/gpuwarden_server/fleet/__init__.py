"""What the fleet is made of: nodes, GPUs, slots."""
