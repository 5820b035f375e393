"""The cluster as last seen: registries, indexes and the snapshot that a round plans from."""
