"""What a round has to solve: demands, atomic groups, costs and free capacity."""
