"""What people and schedulers say of the fleet: racks, leaves, pools, mounts, expected GPUs."""
