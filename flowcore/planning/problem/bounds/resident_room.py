"""The room of pods on nodes in a lower bound: what plans gain at most if some of them leave or move.

By weak duality. A pod that may leave adds its room to what is free, and pays the least of three: its usage at the
shadow prices of its node if it stays, the price of a move and its usage on the node where that is cheapest, or the
price of leaving. So the bound falls by what it pays less than if it stayed. Any shadow prices are valid. What limits
evictions (budgets, gangs, priorities of single pods) only takes plans away, so the bound holds without it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s, Load
from flowcore.model.cost_policy import Utilisation
from flowcore.model.resources import CPU, MEMORY
from flowcore.planning.problem.bounds.least_arc import least_arc
from flowcore.planning.problem.bounds.leaving_limits import LeavingLimit
from flowcore.planning.problem.bounds.rules_beside import rules_beside
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem, priced
from flowcore.rules.filters import static_fits
from flowcore.rules.filters.node_resources_fit import count_fitting
from flowcore.rules.filters.registry import RUNNING_TERMS, run_filter

#: The price of what a pod may not do.
NEVER = 2**62
#: A pod pays at most so much less for being rounded: a half for each of two potentials.
_ROUNDING = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class ResidentRoom:
    """V pods on nodes that a plan may let leave or move.

    Attributes:
        nodes: int64[V].
        usage: int64[V, R].
        leave_prices, move_prices: int64[V], none negative; ``NEVER``: it may not.
        before: the capacity with all of them there, and nothing planned.
        emptied: the capacity without any of them.
        limits: what limits how many of them leave or move; no pod is in two.
        expected: a capacity with about as many of them gone as limits let leave; None: that without limits.
        others_come: whether pods may come that are neither in the problem nor replacements of these.
    """

    nodes: Int64s
    usage: Int64s
    leave_prices: Int64s
    move_prices: Int64s
    before: Plan
    emptied: Plan
    limits: tuple[LeavingLimit, ...] = ()
    expected: Plan | None = None
    others_come: bool = False

    @property
    def gone(self) -> ResidentRoom:
        """The same without any of them: whoever left has left for nothing."""
        nobody = self.nodes[:0]
        return replace(self, nodes=nobody, usage=self.usage[:0], leave_prices=nobody, move_prices=nobody, limits=())

    @property
    def _moving(self) -> Bools:
        """bool[V]: pods for which a move may be cheaper than to leave."""
        moving: Bools = self.move_prices < self.leave_prices
        return moving

    def saved_by_leaving(self, shadow_prices: Float64s) -> Float64s:
        """float64[V]: how much less each pays at most than if it stayed.

        Args:
            shadow_prices: float64[N, R], none negative.
        """
        staying = (shadow_prices[self.nodes] * self.usage).sum(axis=1)
        least = np.where(self.leave_prices < NEVER, self.leave_prices.astype(np.float64), np.inf)
        moving = np.nonzero(self._moving)[0]
        if len(moving):
            usages, kind = np.unique(self.usage[moving], axis=0, return_inverse=True)
            cheapest = np.array([(shadow_prices @ usage).min() for usage in usages.astype(np.float64)])
            least[moving] = np.minimum(least[moving], self.move_prices[moving] + cheapest[kind.ravel()])
        given: Float64s = np.maximum(staying - least, 0.0)
        return given

    def spare(self, cost_matrix: CostMatrix) -> Int64s:
        """int64[N, R]: what pods of the round, and those that move, can take of what is free."""
        moving = (self.usage[self._moving] > 0).any(axis=0)
        spare: Int64s = np.where(moving, np.maximum(cost_matrix.capacity.free, 0), cost_matrix.spare)
        return spare

    def least_increase(self, demand: Demand) -> Float64s:
        """float64[N]: what a pod adds at least to the potential of each node, wherever the pods of this room are.

        A potential is convex and never falls: its slope along a resource is at least its curvature times what is taken
        of that. So it is for the emptiest load that a node can have, and for all fuller ones.
        """
        potential, counted = demand.potential, demand.counted.astype(np.float64)
        if potential.utilisation is not Utilisation.REQUESTED:  # it is not known how much there can be in use
            return np.zeros(len(self.before.free))
        least = self.emptied.load(potential.utilisation)
        curvature = potential.curvature(fullest(self.before))
        taken = np.column_stack([least.taken, least.pods])
        increase = curvature @ (counted * counted / 2) + (curvature * taken) @ counted
        return np.maximum(increase - _ROUNDING, 0.0)


def fullest(capacity: Plan) -> Load:
    """No node is fuller than this by what pods request, whatever the plan: all that comes has its requests there.

    Pods may count for more than their requests, and there are at most as many as a node allows.

    Args:
        capacity: before the plan.
    """
    before = capacity.load(Utilisation.REQUESTED)
    pods = np.maximum(before.pods_allowed, before.pods)
    beyond = np.array([*capacity.before.most_beyond_requests, 0.0])
    free = np.zeros_like(before.taken)
    for column, name in enumerate((CPU, MEMORY)):
        free[:, column] = np.maximum(capacity.free[:, capacity.before.resources.index(name)], 0)
    free[:, 2] = np.maximum(before.capacity[:, 2] - before.taken[:, 2], 0)
    taken = before.taken + free + pods[:, np.newaxis] * beyond
    return Load(before.table, before.capacity, taken, before.pods_allowed, pods)


def demands_beside(problem: Problem, room: ResidentRoom) -> tuple[Demand, ...]:
    """The demands of a problem, each on all nodes that may take its pods wherever the pods of a room are.

    What reads nothing but the node still rejects nodes. So do rules between pods, as far as pods that stay stand
    against others. Ports, volumes and zones do not: who leaves may be who has them.
    """
    fitting = []
    before, emptied = room.before.before, room.emptied.before
    demands = [priced(problem, demand) for demand in problem.demands]
    rules = rules_beside(demands, before, emptied, more=room.others_come)
    for demand, constraints in zip(demands, rules, strict=True):
        group = demand.group
        allowed = static_fits(group.pod_class, group.signature, problem.snapshot, problem.cache.run_filter)
        for rejection in run_filter(RUNNING_TERMS, group.pod_class, group.signature, emptied):
            allowed &= ~rejection.nodes
        counts = np.where(allowed, count_fitting(demand.requests, room.emptied.free), 0)
        if group.pod_class.host_ports:
            counts = np.minimum(counts, 1)
        arc = least_arc(demand, problem.snapshot)
        fitting.append(replace(demand, allowed=allowed, counts=counts, arc=arc, constraints=constraints))
    return tuple(fitting)
