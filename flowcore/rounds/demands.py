"""Groups in a snapshot's terms: what they ask for, where they may ever go, what that costs and what waiting costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flowcore.classes import Group, VerdictCache, group
from flowcore.classes.invalidation import OF_A_NODE
from flowcore.costs import MODELS, unscheduled_prices
from flowcore.costs.model import CostModel, Float64s, Load
from flowcore.filters import lasting_fits
from flowcore.filters.registry import PORTS
from flowcore.model.policies import Policy
from flowcore.model.resources import PODS
from flowcore.model.snapshot import Bools, Int64s, Snapshot, assumed_amounts


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """One group of a round.

    Attributes:
        wanted: int64[R], what one pod asks for.
        size: float64[2], cpu and memory that one pod counts for in the cost model.
        allowed: bool[N], nodes that pass every filter which the round itself cannot change.
        counts: int64[N], how many of its pods each node takes, alone, as the round begins.
        arc: int64[N], what the class brings to the cost of a node; priced once, as the round begins.
        prices: int64[pods], what leaving each pod pending costs, falling: the first to go is the dearest to leave.
        share: how large one pod is: the largest share that it takes of what all nodes have of a resource.
        turn: place in the queue, 0 for the demand whose first pod is the dearest to leave, among equals the largest.
    """

    group: Group
    policy: Policy
    model: CostModel
    wanted: Int64s
    size: Float64s
    allowed: Bools
    counts: Int64s
    arc: Int64s
    prices: Int64s
    share: float
    turn: int

    @property
    def count(self) -> int:
        """Its pods."""
        return len(self.group.pods)

    def prices_of_last(self, count: int) -> Int64s:
        """Prices of the ``count`` pods that are placed last."""
        return self.prices[len(self.prices) - count :]


def _counts(found: Group, allowed: Bools, snapshot: Snapshot, cache: VerdictCache) -> Int64s:
    counts = np.where(allowed, cache.counts(found.pod_class, snapshot), 0)
    if found.pod_class.host_ports:
        counts = np.minimum(counts, 1)
        for rejection in cache.ask(PORTS, found.pod_class, found.kind, snapshot):
            counts[rejection.nodes] = 0
    return counts


def _arc(found: Group, policy: Policy, size: Float64s, snapshot: Snapshot, cache: VerdictCache) -> Int64s:
    model = MODELS[policy.cost_model]

    def price(part: Snapshot) -> Int64s:
        return model.arc_costs(found.pod_class, size, Load.of(part, part.assumed), policy.weights)

    key = (model.name, policy.weights, found.pod_class)
    return cache.values("arc costs", key, OF_A_NODE, snapshot, price)


def demands_of(snapshot: Snapshot, policies: Mapping[str, Policy], cache: VerdictCache) -> tuple[Demand, ...]:
    """All pending pods of a snapshot as demands, in the order of their first pod."""
    groups = group(snapshot.pending, snapshot.neighbours)
    sizes = [np.array(assumed_amounts(found.pod_class.requests), dtype=np.float64) for found in groups]
    allowed = [lasting_fits(found.pod_class, found.kind, snapshot, cache.ask) for found in groups]
    arcs, dearest = [], 0
    for found, size, nodes in zip(groups, sizes, allowed, strict=True):
        policy = policies[found.policy]
        model = MODELS[policy.cost_model]
        arc = _arc(found, policy, size, snapshot, cache)
        arcs.append(arc)
        if nodes.any():
            dearest = max(dearest, int(arc[nodes].max()) + model.dearest_slot(policy.weights))
    everything = np.maximum(snapshot.allocatable.astype(np.float64).sum(axis=0), 1.0)
    everything[snapshot.resources.index(PODS)] = np.inf  # a pod is a pod
    prices = unscheduled_prices(groups, policies, snapshot.now, dearest)
    wanted = [snapshot.vector(found.pod_class.requests) for found in groups]
    shares = [float((each / everything).max()) for each in wanted]
    queue = sorted(range(len(groups)), key=lambda at: (-int(prices[at][0]), -shares[at], at))
    turns = {at: turn for turn, at in enumerate(queue)}
    return tuple(
        Demand(
            group=found,
            policy=policies[found.policy],
            model=MODELS[policies[found.policy].cost_model],
            wanted=wanted[at],
            size=sizes[at],
            allowed=allowed[at],
            counts=_counts(found, allowed[at], snapshot, cache),
            arc=arcs[at],
            prices=prices[at],
            share=shares[at],
            turn=turns[at],
        )
        for at, found in enumerate(groups)
    )
