"""What the claims of a pod get on a node: earlier alternatives of devices, and storage that leaves much free.

Source: kube-scheduler plugins/dynamicresources (computeScore, NormalizeScore) and, since 1.37, plugins/volumebinding
(Score, StorageCapacityScoring)::

    cost = 10 * deviceAlternatives * (100 - 100 * score / score of the best node)
             score: sum over requests with alternatives (firstAvailable) of 8 - place of the one that the node has
         + 10 * freeStorage        * (100 - score)
             score: mean over storage classes of the share that stays free (flowcore/rules/volumes/free_storage.py)

Pods of a round take devices and volumes from each other. The cost of a node is by what it has left, the best node that
of the round's beginning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.costs.scale import OMEGA
from flowcore.model.cost_policy import CostWeights
from flowcore.model.pods import PodClass
from flowcore.rules.filters.dynamic_resources import alternatives_scores
from flowcore.rules.volumes.free_storage import BEST, storage_scores

#: The best score after it is scaled, and the cost of one point of it.
_MAX_SCORE = 100
_POINT = OMEGA // _MAX_SCORE


@dataclass(frozen=True, slots=True, eq=False)
class ScoreCosts:
    """What scores of nodes for the claims of a class cost.

    Attributes:
        begun: int64[N], none negative, as the round begins; the costs of nodes that may not be used have no meaning.
        best: the score that costs nothing.
        weight: of the policy.
    """

    begun: Int64s
    best: int
    weight: int

    @classmethod
    def of(cls, scores: Int64s, best: int, weight: int) -> ScoreCosts:
        """Costs of some scores, int64[N], none negative."""
        return cls(_cost(scores, best, weight), best, weight)

    @property
    def most(self) -> int:
        """The most that any node costs."""
        return OMEGA * self.weight

    def cost(self, scores: Int64s) -> Int64s:
        """int64[M], none negative: cost of some scores."""
        return _cost(scores, self.best, self.weight)


@dataclass(frozen=True, slots=True, eq=False)
class ClaimCosts:
    """What the claims of a class cost; None: all nodes are alike for them, and will be.

    Attributes:
        devices: by the alternatives that nodes have.
        storage: by what stays free there.
    """

    devices: ScoreCosts | None = None
    storage: ScoreCosts | None = None

    @classmethod
    def of(cls, pod_class: PodClass, snapshot: Snapshot, passing: Bools, weights: CostWeights) -> ClaimCosts:
        """The costs for a class.

        Args:
            passing: bool[N], nodes among which they are scaled.
        """
        devices = storage = None
        if pod_class.devices is not None and weights.device_alternatives and passing.any():
            scores = alternatives_scores(pod_class, snapshot)
            best = 0 if scores is None else int(scores[passing].max())
            if scores is not None and best:
                devices = ScoreCosts.of(scores, best, weights.device_alternatives)
        if pod_class.volumes and weights.free_storage and passing.any():
            scores = storage_scores(pod_class.volumes, snapshot.storage, snapshot.table)
            if scores is not None and scores[passing].any():
                storage = ScoreCosts.of(scores, BEST, weights.free_storage)
        return NO_CLAIM_COSTS if devices is None and storage is None else cls(devices, storage)

    @property
    def parts(self) -> tuple[ScoreCosts, ...]:
        """The costs that there are: of devices, of storage."""
        return tuple(each for each in (self.devices, self.storage) if each is not None)

    @property
    def most(self) -> int:
        """The most that any node costs."""
        return sum(each.most for each in self.parts)


NO_CLAIM_COSTS = ClaimCosts()


def _cost(scores: Int64s, best: int, weight: int) -> Int64s:
    cost: Int64s = _POINT * weight * (_MAX_SCORE - np.clip(_MAX_SCORE * scores // best, 0, _MAX_SCORE))
    return cost
