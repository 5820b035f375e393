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
    used = np.where(capacity > 0, amount / np.maximum(capacity, 1.0), 1.0)
    return np.minimum(used, float(MOST_SHARE), out=used)


def energy(used: Float64s) -> Float64s:
    """``used^2 / 2`` for a share of a node; beyond MOST_SHARE it rises no steeper. Its slope is ``slope(used)``."""
    capped = np.minimum(used, float(MOST_SHARE))
    cost: Float64s = capped * -0.5
    cost += used
    cost *= capped
    return cost


def bend(used: Float64s) -> Float64s:
    """The least curvature of ``energy`` up to such a share."""
    return np.where(used <= MOST_SHARE, 1.0, 0.0)


def slope(used: Float64s) -> Float64s:
    """How steeply ``energy`` rises."""
    return np.minimum(used, float(MOST_SHARE))
