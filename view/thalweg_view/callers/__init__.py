"""Callers of the view: who asks, what they may read, and how much at a time."""
