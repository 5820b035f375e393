"""What all cost models share: the scale, and shares of a node. 1000 is the cost of one whole node."""

from __future__ import annotations

import numpy as np

from flowcore.costs.model import Float64s

#: Cost of one whole node's utilisation (Firmament's omega), and the offset of each arc.
OMEGA = 1000
#: No node counts as more than this many times full.
MOST_SHARE = 16


def share(amount: Float64s, capacity: Float64s) -> Float64s:
    """Amount over capacity; a node without the resource counts as full."""
    part = np.where(capacity > 0, amount / np.maximum(capacity, 1.0), 1.0)
    return np.minimum(part, float(MOST_SHARE), out=part)
