"""Rounds: when they run, what they are asked and how they are kept."""
