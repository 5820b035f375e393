"""How objects come into a scenario: one by one, from a dump, from a saved state."""
