"""A round: its problem, the methods that solve it, evictions, declared networks and the result."""
