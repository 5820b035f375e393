"""The cluster as arrays: the snapshot that a round plans from, and what fills it."""
