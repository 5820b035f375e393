"""What a running pod that is spread adds to the crowding of its own node and zone: a move must not count it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.costs.preferences import spread_cost
from flowcore.costs.scale import OMEGA
from flowcore.model.inter_pod_constraints import HOSTNAME
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.rules.topology.soft_spread import spread_score
from flowcore.rules.topology.spread import selects_itself


@dataclass(frozen=True, slots=True, eq=False)
class OwnCrowding:
    """Costs that a pod causes itself, by its node; the most crowded node is taken to stay as it is.

    Attributes:
        at_home: int64[N], of its own node.
        in_zone: int64[N], of another node of its zone.
        zones: int64[N], the zone of each node: the values of all labels but the node's name that it is spread by.
    """

    at_home: Int64s
    in_zone: Int64s
    zones: Int64s

    @classmethod
    def of(
        cls, pod_class: PodClass, signature: PodSignature, snapshot: Snapshot, passing: Bools, weight: int
    ) -> OwnCrowding | None:
        """Of a pod that runs; None: it is not spread.

        Args:
            passing: bool[N], nodes among which its spread is scaled.
            weight: of spread.
        """
        table = snapshot.table
        spread = spread_score(pod_class, signature, snapshot.pod_index, table, passing) if weight else None
        constraints = signature.constraints
        if spread is None or constraints is None or not (passing & ~spread.unlabelled).any():
            return None
        most = max(1, int(spread.score[passing & ~spread.unlabelled].max()))
        at_home, in_zone, keys = 0.0, 0.0, []
        for constraint, own in zip(constraints.soft_spread, spread.weights, strict=True):
            if selects_itself(constraint, signature):
                at_home += own
                if constraint.topology_key != HOSTNAME:
                    in_zone += own
                    keys.append(table.column(constraint.topology_key).codes)
        zones = np.zeros(len(table.nodes), dtype=np.int64)
        if keys:
            zones = np.unique(np.array(keys, dtype=np.int64), axis=1, return_inverse=True)[1].ravel()
        share = spread_cost(spread, passing)

        def part(own: float) -> Int64s:
            cost: Int64s = weight * np.minimum(share, int(OMEGA * own / most))
            return cost

        return cls(part(at_home), part(in_zone), zones)

    def cheapest_elsewhere(self, costs: Int64s, dearest: int) -> Int64s:
        """int64[N]: the least cost of another node for a pod that runs on each node.

        Args:
            costs: int64[N], of each node with the crowding that the pod causes; ``dearest`` where it may not go.
        """
        inside = np.where(costs < dearest, costs - self.in_zone, dearest)
        count = int(self.zones.max(initial=0)) + 1
        least = np.full(count, dearest, dtype=np.int64)
        np.minimum.at(least, self.zones, costs)
        order = np.argsort(least, kind="stable")
        outside = np.full(count, least[order[0]], dtype=np.int64)
        outside[order[0]] = least[order[1]] if count > 1 else dearest
        ranked = np.lexsort((inside, self.zones))
        starts = np.searchsorted(self.zones[ranked], np.arange(count))
        ends = np.append(starts[1:], len(ranked))
        first, second = ranked[starts], ranked[np.minimum(starts + 1, len(ranked) - 1)]
        cheapest = inside[first][self.zones]
        seconds = np.where(starts + 1 < ends, inside[second], dearest)
        cheapest[first] = seconds
        cheapest_of_all: Int64s = np.minimum(cheapest, outside[self.zones])
        return cheapest_of_all
