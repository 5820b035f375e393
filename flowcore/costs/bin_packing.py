"""Bin packing: the fullest node that fits comes first, so that others stay empty for large pods, or can be removed.

Source: kube-scheduler's MostAllocated score (plugins/noderesources/most_allocated.go).

With ``u_cpu``, ``u_mem`` the utilisation of the node as the round begins, the pod itself counted in::

    arc     = 1000
            + 1000 * leastRequested * (1 - (u_cpu + u_mem) / 2)
            +  100 * leastRequested * sqrt(place / nodes)
    potential = 0

``leastRequested`` weighs the fullness here, a name that then means its opposite; ``balance`` is not read. ``place``
counts the nodes that have room for the pod, fullest first and among equals in the order of the table.

True packing would make a node cheaper with each pod that goes there. A min-cost flow cannot say so: it fills slots
in order only if they never get cheaper. So nodes are priced once, as the round begins, and slots are flat. It follows:

* The order in which nodes are filled is fixed for a round. A node that this round fills half does not overtake one
  that was fuller before it; the next round sees it as it is then.
* Equally full nodes (all of an empty cluster) would cost the same, and a flow would spread over them at will. The
  place is what tells them apart: it weighs a tenth of a node at most, as much as a preferred node affinity of weight
  10 where a policy counts points, and grows with its root so that the first places differ most. In whole units up to
  about 50 nodes differ each from the next; of 12,500 the last few that a batch touches may be part full: about 7
  after 10 nodes, 70 after 1,000.
* With pods of very different sizes the plan is no minimum of nodes: a slot stands for a mean pod. 1,000 pods of 210
  kinds on 5,000 empty nodes took 509 nodes by flow and 403 one by one, 1,000 under CPUMemory.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.flat_potential import FlatPotential
from flowcore.costs.model import Float64s, Load
from flowcore.costs.scale import OMEGA, share
from flowcore.model.cost_policy import CostWeights
from flowcore.model.pods import PodClass

#: What the last place costs more than the first.
_PLACES = OMEGA // 10


class BinPacking(FlatPotential):
    """Prices the fullest node lowest. Packing is concave, so nodes have no potential."""

    name: ClassVar[str] = "BinPacking"

    def arc_costs(self, pod_class: PodClass, size: Float64s, load: Load, weights: CostWeights) -> Int64s:  # noqa: ARG002
        """int64[N]: cost of the arc to each node."""
        capacity, after = load.capacity[:, :2], (load.taken + size)[:, :2]
        full = np.minimum(share(after, capacity), 1.0).sum(axis=1) / 2
        empty = np.rint(OMEGA * (1 - full)).astype(np.int64)
        # Full nodes cost least and take nothing: they must not use up the places.
        roomy = (after <= capacity).all(axis=1) & (load.pods + 1 <= load.pods_allowed)
        order = np.lexsort((np.arange(len(empty)), empty, ~roomy))
        place = np.empty(len(order), dtype=np.float64)
        place[order] = np.arange(len(order))
        apart = np.rint(_PLACES * np.sqrt(place / max(len(order), 1))).astype(np.int64)
        cost: Int64s = OMEGA + weights.least_requested * (empty + apart)
        return cost

    def arc_range(self, size: Float64s, weights: CostWeights) -> tuple[int, int]:  # noqa: ARG002
        """A full node, and the last of empty ones."""
        return OMEGA, OMEGA + weights.least_requested * (OMEGA + _PLACES)
