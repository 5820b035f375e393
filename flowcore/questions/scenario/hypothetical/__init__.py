"""Hypothetical changes of a scenario: what they are, and how they are made and taken back."""
