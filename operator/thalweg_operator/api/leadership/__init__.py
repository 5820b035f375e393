"""Which replica leads: the lease, its watch, and the Services that lead to the leader."""
