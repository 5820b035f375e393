"""Load spreading: the node with the fewest pods first, whatever their size.

Source: Firmament octopus_cost_model.cc, where an arc costs 100 for each pod that runs on the node. Here planned pods
count as running ones do, and a count is a share of the pods that the node allows, so that 1000 is one node full of pods
as in all models, and nodes that allow different numbers of pods fill evenly.

::

    potential = 1000 * leastRequested * (pods there)^2 / (2 * pods allowed)
    arc       = 1000

so that a pod pays ``1000 * leastRequested * (pods there + 1/2) / pods allowed``.

``leastRequested`` weighs the pods here; ``balance`` is not read. A step is about 9 on a node of 110 pods; where a node
allows more than 1000 pods a step is less than one unit, and counts that differ by less than a unit count as equal.
Counts come out even to one pod where a round brings a node up to 16; beyond that the network's slots are coarser
(network.slots), and so is evenness.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import Float64s, Load
from flowcore.costs.scale import OMEGA, bend, energy, slope
from flowcore.model.cost_policy import CostWeights
from flowcore.model.pods import PodClass


class LoadSpreading:
    """Prices a node by the number of its pods."""

    name: ClassVar[str] = "LoadSpreading"

    def arc_costs(self, pod_class: PodClass, size: Float64s, load: Load, weights: CostWeights) -> Int64s:  # noqa: ARG002 - a pod is a pod
        """int64[N]: cost of the arc to each node."""
        return np.full(len(load.taken), OMEGA, dtype=np.int64)

    def arc_range(self, size: Float64s, weights: CostWeights) -> tuple[int, int]:  # noqa: ARG002
        """All arcs are equal."""
        return OMEGA, OMEGA

    def potential(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:  # noqa: ARG002
        """float64[...]: potential of nodes with this load."""
        allowed = np.maximum(load.pods_allowed, 1.0)
        total: Float64s = OMEGA * weights.least_requested * allowed * energy(load.pods / allowed)
        return total

    def gradient(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:  # noqa: ARG002
        """float64[..., 4]: slopes of the potential along CPU, memory, bandwidth and number of pods."""
        slopes = np.zeros((*load.pods.shape, 4))
        slopes[..., 3] = OMEGA * weights.least_requested * slope(load.pods / np.maximum(load.pods_allowed, 1.0))
        return slopes

    def curvature(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:  # noqa: ARG002
        """float64[N, 4]: lower bounds of the curvature along the same columns."""
        allowed = np.maximum(load.pods_allowed, 1.0)
        bends = np.zeros((*load.pods.shape, 4))
        bends[..., 3] = OMEGA * weights.least_requested * bend(load.pods / allowed) / allowed
        return bends

    def steepest(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:
        """float64[N, 4]: upper bounds of the slopes."""
        return self.gradient(load, unit, weights)
