"""The potential of models that price nodes by arcs alone: none."""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import Float64s, Load
from flowcore.model.cost_policy import CostWeights
from flowcore.model.pods import PodClass


class FlatPotential:
    """The methods of a CostModel about load, for nodes whose cost does not depend on their load."""

    def potential(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:  # noqa: ARG002
        """float64[...]: potential of nodes with this load."""
        return np.zeros(load.pods.shape)

    def gradient(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:  # noqa: ARG002
        """float64[..., 4]: slopes of the potential along CPU, memory, bandwidth and number of pods."""
        return np.zeros((*load.pods.shape, 4))

    def curvature(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:
        """float64[N, 4]: lower bounds of the curvature along the same columns."""
        return self.gradient(load, unit, weights)

    def steepest(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:
        """float64[N, 4]: upper bounds of the slopes."""
        return self.gradient(load, unit, weights)


class NoCosts(FlatPotential):
    """Of pods that pay for nothing but the ways of their network."""

    name = "(none)"

    def arc_costs(self, pod_class: PodClass, size: Float64s, load: Load, weights: CostWeights) -> Int64s:  # noqa: ARG002
        """int64[N]: zeros."""
        return np.zeros(len(load.taken), dtype=np.int64)

    def arc_range(self, size: Float64s, weights: CostWeights) -> tuple[int, int]:  # noqa: ARG002
        """Zeros."""
        return 0, 0
