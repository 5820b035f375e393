"""Measured usage of nodes and pods: where it is read, and what a round gets of it."""
