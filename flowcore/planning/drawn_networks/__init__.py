"""Networks that policies draw, or their cost models: as rules of single pods, or solved as a whole (``joint``)."""
