"""Pods on nodes while a round plans: what is committed, and the room that is left."""
