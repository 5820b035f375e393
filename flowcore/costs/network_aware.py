"""Network-aware: the node whose network has the most to spare, by what pods ask for and by what is measured.

Source: Firmament's net_cost_model.cc and section 3.3 of its paper: requested bandwidth is a limit, and a slot costs the
more the more of the node's bandwidth is asked for or seen in use. There ten slots a node cost
``(i + 1) * request - available + 1,280,000``; here each is a share of the node's own bandwidth, so that nodes with
different networks fill evenly and 1000 is one whole network, as in all models.

Pods ask for, and nodes offer, the extended resource BANDWIDTH in bits per second; NodeResourcesFit makes it a limit.
What is measured an agent writes on the node (MEASURED_BANDWIDTH). With ``u`` the bandwidth that pods on the node ask
for, or that was measured as the round began if that is more, as a share of what the node offers::

    slot(i) = 1000 * leastRequested * u                              with i pods of this round there
            +  100 * leastRequested * (pods there + i + 1) / pods allowed
    arc     = 1000
            + 1000 * leastRequested * its bandwidth / node

On a node that offers none ``u`` is one half, whatever goes there: neither the best place nor the worst. A pod that
asks for none adds nothing to ``u``; for such pods the second line spreads them by their number, with a tenth of the
weight. What pods of this round ask for is added to what was measured, although they may use less: a measurement
knows nothing of them yet. ``balance`` is not read.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from flowcore.costs.model import Float64s, Load
from flowcore.costs.scale import MOST_SHARE, OMEGA, share
from flowcore.model.pods import PodClass
from flowcore.model.policies import CostWeights
from flowcore.model.snapshot import Int64s

#: The share of a network of which nothing is known.
_UNKNOWN = 0.5
#: What a node full of pods costs, for being so.
_CROWDED = OMEGA // 10


class NetworkAware:
    """See the module."""

    name: ClassVar[str] = "NetworkAware"

    def arc_costs(self, pod_class: PodClass, size: Float64s, load: Load, weights: CostWeights) -> Int64s:  # noqa: ARG002
        """See CostModel."""
        offered = load.capacity[:, 2]
        own = np.where(offered > 0, share(size[2], offered), 0.0)
        cost: Int64s = OMEGA + np.rint(OMEGA * weights.least_requested * own).astype(np.int64)
        return cost

    def slot_costs(self, load: Load, size: Float64s, levels: Int64s, weights: CostWeights) -> Int64s:
        """See CostModel."""
        cost: Int64s = np.rint(self._slots(load, size, levels, weights)).astype(np.int64)
        return cost

    def slot_floors(
        self,
        load: Load,
        smallest: Float64s,
        largest: Float64s,  # noqa: ARG002
        levels: Int64s,
        weights: CostWeights,
    ) -> Int64s:
        """See CostModel: as if all others had asked for as little as any pod does."""
        # The small change keeps a sum that rounds up here from being one that rounds down in ``slot_costs``.
        floor: Int64s = np.rint(self._slots(load, smallest, levels, weights) - 1e-6).astype(np.int64)
        return floor

    def _slots(self, load: Load, size: Float64s, levels: Int64s, weights: CostWeights) -> Float64s:
        offered = load.capacity[:, np.newaxis, 2]
        taken = load.taken[:, np.newaxis, 2] + levels[np.newaxis, :] * size[:, np.newaxis, 2]
        used = np.where(offered > 0, share(taken, offered), _UNKNOWN)
        pods = share(load.pods[:, np.newaxis] + levels[np.newaxis, :] + 1, load.pods_allowed[:, np.newaxis])
        cost: Float64s = weights.least_requested * (OMEGA * used + _CROWDED * pods)
        return cost

    def dearest_slot(self, weights: CostWeights) -> int:
        """See CostModel."""
        return (OMEGA + _CROWDED) * MOST_SHARE * weights.least_requested
