"""What no plan of a round can beat."""
