"""Network-aware: the node with the most free network bandwidth, by what pods request and by measurement.

Source: Firmament's net_cost_model.cc and section 3.3 of its paper: requested bandwidth is a limit, and a slot costs the
more the more of the node's bandwidth is asked for or seen in use. There ten slots a node cost
``(i + 1) * request - available + 1,280,000``; here each is a share of the node's own bandwidth, so that nodes with
different networks fill evenly and 1000 is one whole network, as in all models.

Pods ask for, and nodes offer, the extended resource BANDWIDTH in bits per second; NodeResourcesFit makes it a limit.
What is measured an agent writes on the node (MEASURED_BANDWIDTH). With ``u`` the bandwidth that pods on the node ask
for, or that was measured as the round began if that is more, as a share of what the node offers, and ``network`` what
it offers in pods of mean size (of those of the round that ask for any)::

    potential = 1000 * leastRequested * network * u^2 / 2
              +  100 * leastRequested * (pods there)^2 / (2 * pods allowed)
    arc       = 1000
              + 1000 * leastRequested * u          as the round begins, for a pod that asks for no bandwidth

A pod that asks for bandwidth pays for the network that it takes, so ``u`` times its size. One that asks for none adds
nothing to ``u`` and pays for it as it is. On a node that offers none ``u`` is one half, whatever goes there: neither
the best place nor the worst. The second line spreads pods by their number, with a tenth of the weight. What pods of
this round ask for is added to what was measured, although they may use less: a measurement knows nothing of them yet.
``balance`` is not read.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import Float64s, Load
from flowcore.costs.scale import MOST_SHARE, OMEGA, bend, energy, share, slope
from flowcore.model.cost_policy import CostWeights
from flowcore.model.pods import PodClass

#: The share of a network of which nothing is known.
_UNKNOWN = 0.5
#: What a node full of pods costs, for being so.
_FULL_OF_PODS = OMEGA // 10


class NetworkAware:
    """Prices a node by the bandwidth that is requested or measured on it."""

    name: ClassVar[str] = "NetworkAware"

    def arc_costs(self, pod_class: PodClass, size: Float64s, load: Load, weights: CostWeights) -> Int64s:  # noqa: ARG002
        """int64[N]: cost of the arc to each node."""
        if size[2] > 0:
            return np.full(len(load.taken), OMEGA, dtype=np.int64)
        offered = load.capacity[:, 2]
        used = np.where(offered > 0, share(load.taken[:, 2], offered), _UNKNOWN)
        cost: Int64s = OMEGA + np.rint(OMEGA * weights.least_requested * used).astype(np.int64)
        return cost

    def arc_range(self, size: Float64s, weights: CostWeights) -> tuple[int, int]:
        """What a pod pays for a network that it does not use: from an idle one to the fullest that counts."""
        return OMEGA, OMEGA * (1 + weights.least_requested * (MOST_SHARE if size[2] <= 0 else 0))

    def potential(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:
        """float64[...]: potential of nodes with this load."""
        offered, allowed = load.capacity[..., 2], np.maximum(load.pods_allowed, 1.0)
        network = offered / unit[2] * energy(load.taken[..., 2] / np.maximum(offered, 1.0))
        pods = allowed * energy(load.pods / allowed)
        total: Float64s = weights.least_requested * (OMEGA * network + _FULL_OF_PODS * pods)
        return total

    def gradient(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:
        """float64[..., 4]: slopes of the potential along CPU, memory, bandwidth and number of pods."""
        offered, slopes = load.capacity[..., 2], np.zeros((*load.pods.shape, 4))
        used = np.where(offered > 0, slope(load.taken[..., 2] / np.maximum(offered, 1.0)), 0.0)
        slopes[..., 2] = OMEGA * weights.least_requested * used / unit[2]
        pods = load.pods / np.maximum(load.pods_allowed, 1.0)
        slopes[..., 3] = _FULL_OF_PODS * weights.least_requested * slope(pods)
        return slopes

    def curvature(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:
        """float64[N, 4]: lower bounds of the curvature along the same columns."""
        offered, allowed = load.capacity[..., 2], np.maximum(load.pods_allowed, 1.0)
        share_of_one = np.where(offered > 0, 1.0 / np.maximum(offered, 1.0), 0.0)
        bends = np.zeros((*load.pods.shape, 4))
        bends[..., 2] = (
            OMEGA * weights.least_requested * bend(load.taken[..., 2] * share_of_one) * share_of_one / unit[2]
        )
        bends[..., 3] = _FULL_OF_PODS * weights.least_requested * bend(load.pods / allowed) / allowed
        return bends

    def steepest(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:
        """float64[N, 4]: upper bounds of the slopes."""
        return self.gradient(load, unit, weights)
