"""A round: its problem, the methods that solve it, evictions, networks and the result."""
