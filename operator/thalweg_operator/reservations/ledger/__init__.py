"""Reservations, whether there is room for one, and what is known of pods that wait."""
