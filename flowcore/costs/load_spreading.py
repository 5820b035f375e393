"""Load spreading: the node with the fewest pods first, whatever their size.

Source: Firmament octopus_cost_model.cc, where an arc costs 100 for each pod that runs on the node. Here planned pods
count as running ones do, and a count is a share of the pods that the node allows, so that 1000 is one node full of pods
as in all models, and nodes that allow different numbers of pods fill evenly.

::

    slot(i) = 1000 * leastRequested * (pods there + i + 1) / pods allowed    with i pods of this round there
    arc     = 1000

``leastRequested`` weighs the pods here; ``balance`` is not read. A step is about 9 on a node of 110 pods; where a node
allows more than 1000 pods a step is less than one unit, and counts that differ by less than a unit count as equal.
Counts come out even to one pod where a round brings a node up to 16; beyond that the network's slots are coarser
(network.slots), and so is evenness.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from flowcore.costs.model import Float64s, Load
from flowcore.costs.scale import MOST_SHARE, OMEGA, share
from flowcore.model.pods import PodClass
from flowcore.model.policies import CostWeights
from flowcore.model.snapshot import Int64s


class LoadSpreading:
    """See the module."""

    name: ClassVar[str] = "LoadSpreading"

    def arc_costs(self, pod_class: PodClass, size: Float64s, load: Load, weights: CostWeights) -> Int64s:  # noqa: ARG002 - a pod is a pod
        """See CostModel."""
        return np.full(len(load.taken), OMEGA, dtype=np.int64)

    def slot_costs(self, load: Load, size: Float64s, levels: Int64s, weights: CostWeights) -> Int64s:  # noqa: ARG002
        """See CostModel."""
        pods = load.pods[:, np.newaxis] + levels[np.newaxis, :] + 1
        cost: Int64s = np.rint(OMEGA * weights.least_requested * share(pods, load.pods_allowed[:, np.newaxis])).astype(
            np.int64
        )
        return cost

    def slot_floors(
        self,
        load: Load,
        smallest: Float64s,
        largest: Float64s,  # noqa: ARG002
        levels: Int64s,
        weights: CostWeights,
    ) -> Int64s:
        """See CostModel: the slots themselves, which ask for no size."""
        return self.slot_costs(load, smallest, levels, weights)

    def dearest_slot(self, weights: CostWeights) -> int:
        """See CostModel."""
        return OMEGA * MOST_SHARE * weights.least_requested
