"""Measured usage of nodes and pods: where it is read, and what of it a round is told."""
