"""Groups in a snapshot's terms: what they ask for, where they may ever go, what that costs and what waiting costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flowcore.classes import Group, group
from flowcore.costs import MODELS, preferences, unscheduled_prices, without_idle_images
from flowcore.costs.model import CostModel, Float64s, Load, counted_amounts
from flowcore.filters import inter_pod_affinity, static_fits
from flowcore.model.policies import Policy
from flowcore.model.resources import PODS
from flowcore.model.snapshot import Bools, Int64s, Snapshot
from flowcore.rounds.topology import Ties, ties_of


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """One group of a round.

    Attributes:
        wanted: int64[R], what one pod asks for.
        size: float64[3], what one pod counts for in the cost model, in the columns of Load.taken.
        allowed: bool[N], nodes that pass every filter which the round itself cannot change.
        arc: int64[N], what the class brings to the cost of a node; priced once, as the round begins.
        prices: int64[pods], what leaving each pod pending costs, falling: the first to go is the dearest to leave.
        share: how large one pod is: the largest share that it takes of what all nodes have of a resource.
        ties: its part in the rules between pods.
        turn: place in the queue, 0 for the demand whose first pod is the dearest to leave, among equals the largest.
    """

    group: Group
    policy: Policy
    model: CostModel
    wanted: Int64s
    size: Float64s
    allowed: Bools
    arc: Int64s
    prices: Int64s
    share: float
    ties: Ties
    turn: int

    @property
    def count(self) -> int:
        """Its pods."""
        return len(self.group.pods)

    def prices_of_last(self, count: int) -> Int64s:
        """Prices of the ``count`` pods that are placed last."""
        return self.prices[len(self.prices) - count :]


def _allowed(found: Group, snapshot: Snapshot) -> Bools:
    rules = found.kind.rules
    if rules is not None and (rules.unreadable_affinity or rules.unreadable_spread):
        return np.zeros(len(snapshot.table.nodes), dtype=np.bool_)
    fits = static_fits(found.pod_class, snapshot.table)
    for rejection in inter_pod_affinity.rejections(found.kind, snapshot.neighbours, snapshot.table):
        fits &= ~rejection.nodes
    return fits


def demands_of(
    snapshot: Snapshot, load: Load, policies: Mapping[str, Policy], models: Mapping[str, CostModel] = MODELS
) -> tuple[Demand, ...]:
    """All pending pods of a snapshot as demands, in the order of their first pod.

    Args:
        models: cost models by the names that policies give.
    """
    classes = without_idle_images({pod.pod_class for pod in snapshot.pending}, snapshot)
    groups = group(snapshot.pending, snapshot.neighbours, classes)
    sizes = [counted_amounts(found.pod_class.requests) for found in groups]
    allowed = [_allowed(found, snapshot) for found in groups]
    arcs, dearest = [], 0
    for found, size, nodes in zip(groups, sizes, allowed, strict=True):
        policy = policies[found.policy]
        model = models[policy.cost_model]
        arc = model.arc_costs(found.pod_class, size, load, policy.weights)
        arc = arc + preferences(found.pod_class, found.kind, snapshot, nodes, policy.weights)
        arcs.append(arc)
        if nodes.any():
            dearest = max(dearest, int(arc[nodes].max()) + model.dearest_slot(policy.weights))
    everything = np.maximum(snapshot.allocatable.astype(np.float64).sum(axis=0), 1.0)
    everything[snapshot.resources.index(PODS)] = np.inf  # a pod is a pod
    offering = np.maximum((snapshot.allocatable > 0).sum(axis=0), 1)
    wanted = [snapshot.vector(found.pod_class.requests) for found in groups]
    tenths = [10 * float((each * offering / everything).max()) for each in wanted]
    prices = unscheduled_prices(groups, tenths, policies, snapshot.now, dearest)
    shares = [float((each / everything).max()) for each in wanted]
    queue = sorted(range(len(groups)), key=lambda at: (-int(prices[at][0]), -shares[at], at))
    ties = ties_of(groups, snapshot)
    turns = {at: turn for turn, at in enumerate(queue)}
    return tuple(
        Demand(
            group=found,
            policy=policies[found.policy],
            model=models[policies[found.policy].cost_model],
            wanted=wanted[at],
            size=sizes[at],
            allowed=allowed[at],
            arc=arcs[at],
            prices=prices[at],
            share=shares[at],
            ties=ties[at],
            turn=turns[at],
        )
        for at, found in enumerate(groups)
    )
