"""Indexes of the cluster as last seen: each answers one question without a walk over all objects."""
