"""Running pods whose own rules no longer hold, and what becomes of them."""
