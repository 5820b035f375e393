"""Groups in a snapshot's terms: what they ask for, where they may ever go, what that costs and what waiting costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from flowcore.classes import Group, VerdictCache, group
from flowcore.classes.invalidation import OF_A_NODE
from flowcore.costs import MODELS, preferences, unscheduled_prices, without_idle_images
from flowcore.costs.model import CostModel, Float64s, Load, counted_amounts
from flowcore.filters import lasting_fits
from flowcore.filters.registry import PORTS
from flowcore.model.policies import CostWeights, Policy
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
        counts: int64[N], how many of its pods each node has room for as the round begins (Room.space).
        arc: int64[N], what the class brings to the cost of a node; priced once, as the round begins.
        first_slot: int64[N], what a first pod pays for the node beside it.
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
    counts: Int64s
    arc: Int64s
    first_slot: Int64s
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


def _counts(found: Group, allowed: Bools, snapshot: Snapshot, cache: VerdictCache) -> Int64s:
    counts = np.where(allowed, cache.counts(found.pod_class, snapshot), 0)
    if found.pod_class.host_ports:
        counts = np.minimum(counts, 1)
        for rejection in cache.ask(PORTS, found.pod_class, found.kind, snapshot):
            counts[rejection.nodes] = 0
    return counts


def _first_slot(
    size: Float64s, model: CostModel, weights: CostWeights, snapshot: Snapshot, load: Load, cache: VerdictCache
) -> Int64s:
    def price(part: Snapshot, at: Int64s | None) -> Int64s:
        there = load if at is None else replace(load.at(at), table=part.table)
        sizes = np.broadcast_to(size, (len(there.taken), len(size)))
        return model.slot_costs(there, sizes, np.zeros(1, dtype=np.int64), weights)[:, 0]

    return cache.values("first slots", (model.name, weights, size.tobytes()), OF_A_NODE, snapshot, price)


def demands_of(
    snapshot: Snapshot,
    load: Load,
    policies: Mapping[str, Policy],
    models: Mapping[str, CostModel] = MODELS,
    cache: VerdictCache | None = None,
) -> tuple[Demand, ...]:
    """All pending pods of a snapshot as demands, in the order of their first pod.

    Args:
        load: of the snapshot.
        models: cost models by the names that policies give.
        cache: what is remembered of earlier rounds.
    """
    cache = VerdictCache.of(snapshot) if cache is None else cache
    classes = without_idle_images({pod.pod_class for pod in snapshot.pending}, snapshot)
    groups = group(snapshot.pending, snapshot.neighbours, classes, snapshot.gangs)
    sizes = [counted_amounts(found.pod_class.requests) for found in groups]
    allowed = [lasting_fits(found.pod_class, found.kind, snapshot, cache.ask) for found in groups]
    arcs, firsts, dearest = [], [], 0
    for found, size, nodes in zip(groups, sizes, allowed, strict=True):
        policy = policies[found.policy]
        model = models[policy.cost_model]
        # Not remembered: a model may compare nodes with each other, so no arc follows from its own row alone.
        arc = model.arc_costs(found.pod_class, size, load, policy.weights)
        arc = arc + preferences(found.pod_class, found.kind, snapshot, nodes, policy.weights)
        arcs.append(arc)
        firsts.append(_first_slot(size, model, policy.weights, snapshot, load, cache))
        if nodes.any():
            dearest = max(dearest, int(arc[nodes].max()) + model.dearest_slot(policy.weights))
    everything = np.maximum(snapshot.allocatable.astype(np.float64).sum(axis=0), 1.0)
    everything[snapshot.resources.index(PODS)] = np.inf  # a pod is a pod
    offering = np.maximum((snapshot.allocatable > 0).sum(axis=0), 1)
    wanted = [snapshot.vector(found.pod_class.requests) for found in groups]
    tenths = [10 * float((each * offering / everything).max()) for each in wanted]
    counts = [_counts(found, nodes, snapshot, cache) for found, nodes in zip(groups, allowed, strict=True)]
    placeable = [bool(each.any()) for each in counts]
    prices = unscheduled_prices(groups, tenths, placeable, policies, snapshot.now, dearest)
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
            counts=counts[at],
            arc=arcs[at],
            first_slot=firsts[at],
            prices=prices[at],
            share=shares[at],
            ties=ties[at],
            turn=turns[at],
        )
        for at, found in enumerate(groups)
    )
