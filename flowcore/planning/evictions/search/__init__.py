"""Which residents leave for waiting pods: a search on each node, and an exact one for all nodes."""
