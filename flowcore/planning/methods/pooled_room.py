"""Pods that pay for nothing but room: how much of what waits every plan leaves at least.

The objective is one that people read: a pod that is left counts for one, or for what it asks of one resource. The round
in fractions has no potentials then. From its prices of room, right or wrong, a bound follows, computed by our own code.

A plan is any choice of nodes for any of the pods that keeps within the room of the nodes. Filters, rules between pods,
gangs, priorities, limits and costs only remove plans, so the bound holds with them too. Who calls this counts the room
of running pods that may leave as room; then it holds for plans that evict or move pods too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.methods.node_states import NodeStates
from flowcore.planning.methods.pod_kinds import PodKind, merged
from flowcore.planning.methods.relaxation import RoundInFractions
from flowcore.planning.problem.bounds.bounds import Scale
from flowcore.planning.problem.bounds.least_cost import cheapest_places, plan_cost

#: Most pools and most kinds of the program.
_MOST_POOLS, _MOST_KINDS = 96, 100


@dataclass(frozen=True, slots=True, eq=False)
class PooledRoom:
    """Pods in C classes, and nodes in S pools; the nodes of a pool count as one.

    What a plan does on nodes it does in their pools, so pooling loses plans none.

    Attributes:
        kinds: one for each class.
        counts: int64[C, S], how many pods of each class at most the nodes of a pool take, if no others come.
        room: float64[S, R], what the pods can take in a pool.
        program: with alike classes as one where there are many.
    """

    kinds: Sequence[PodKind]
    counts: Int64s
    room: Float64s
    program: RoundInFractions

    @classmethod
    def of(cls, kinds: Sequence[PodKind], spare: Int64s, apart: Bools | None = None) -> PooledRoom | None:
        """The pools of some nodes; None: no pod fits any.

        Args:
            kinds: of one class each (``PodKind.of_room``), in their order.
            spare: int64[N, R], what pods can take of nodes, whatever the plan.
            apart: bool[N], no such node is in a pool with others.
        """
        fitting = [kind for kind in kinds if kind.most.any()]
        if not fitting:
            return None
        pods = np.array([kind.pods for kind in kinds], dtype=np.float64)
        requests = np.array([kind.requests for kind in kinds])
        units = np.maximum(np.gcd.reduce(requests, axis=0), 1)
        room = spare // units * units
        # Of those pods that ask for a resource.
        mean_request = np.maximum(pods @ requests / np.maximum(pods @ (requests > 0), 1), 1.0)
        states = NodeStates.by_room(fitting, room, room / mean_request, _MOST_POOLS, apart)
        counts = np.zeros((len(kinds), len(states.sizes)), dtype=np.int64)
        counts[[kind.members[0] for kind in fitting]] = states.total(np.array([kind.most for kind in fitting]).T).T
        program = RoundInFractions.of(merged(fitting, _MOST_KINDS), states, room)
        return cls(kinds, counts, states.total(room), program)

    def prices(self, weights: Int64s) -> Float64s:
        """float64[S, R]: good prices of resources in each pool; zeros where the solver found none.

        Args:
            weights: int64[C], what a pod of each class that is left counts for.
        """
        solved = self.program.solve(self._leaving(weights))
        return np.zeros_like(self.room) if solved is None else solved.prices

    def _leaving(self, weights: Int64s) -> list[Int64s]:
        return [np.full(int(kind.pods), weight) for kind, weight in zip(self.kinds, weights, strict=True)]

    def least(self, weights: Int64s, prices: Float64s) -> int:
        """A sum of weights that the pods left by any plan do not go below.

        A pod pays its weight if it is left, else what it takes at the prices, where it pays least. What that
        overcharges is at most the price of all room.

        Args:
            weights: int64[C], of a pod of each class, not negative.
            prices: float64[S, R], of a unit of each resource in each pool, not negative.
        """
        leaving = self._leaving(weights)
        scale = Scale.of(sum(len(left) * int(weight) for left, weight in zip(leaving, weights, strict=True)))
        total = int(scale.down(-(self.room * prices).sum(axis=1)).sum())
        for kind, counts, left in zip(self.kinds, self.counts, leaving, strict=True):
            places = cheapest_places(scale.down(prices @ kind.requests), counts, len(left))
            total += int(plan_cost(places, left * scale.parts))
        return max(0, -(-total // scale.parts))
