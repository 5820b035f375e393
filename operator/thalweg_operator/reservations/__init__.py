"""Placements on their way: who holds which node, and what happens next."""
