"""Networks that policies draw, as rules of single pods."""
