"""Planning by min-cost flow: solve, commit what truly fits, solve again for the rest.

A slot counts pods, not resources: a node with three slots may be handed a big pod and two that no longer fit beside it
(camsas/firmament#71). So flows are a proposal. What each node truly has room for is committed, and
the rest goes into the next flow with the room that is left, until a flow brings next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.costs.model import Float64s
from flowcore.model.snapshot import Bools, Int64s
from flowcore.network import build, decode, levels_for
from flowcore.rounds.commits import Commit
from flowcore.rounds.demands import Demand
from flowcore.rounds.room import Room
from flowcore.solve import potentials, solve

#: A flow that commits less than one in this many of its pods is the last: one-by-one finishes faster.
_WORTHWHILE = 50
_MOST_SOLVES = 12
#: Arcs from classes to nodes that the first network of a flow has room for.
_FIRST_ARCS = 40_000
#: Arcs that a class starts with, and gets more of, at least.
_FEWEST = 16
#: Cost of an arc that is not there.
_NO_ARC = 2**60


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """Commits of all flows in order, and what they took."""

    commits: tuple[Commit, ...]
    solves: int
    arcs: int


@dataclass(frozen=True, slots=True, eq=False)
class _Supply:
    """A demand in one flow: how many of its pods still go, and int64[N] how many each node could take."""

    at: int
    demand: Demand
    count: int
    fitting: Int64s

    @property
    def prices(self) -> Int64s:
        return self.demand.prices_of_last(self.count)


@dataclass(frozen=True, slots=True, eq=False)
class _Proposal:
    """Arcs that a flow uses: place in the supplies, node and pods, int64[M] each; the network's size and the cost."""

    supplies: Int64s
    nodes: Int64s
    pods: Int64s
    size: int
    cost: int


def plan_by_flow(demands: Sequence[Demand], room: Room) -> FlowPlan:
    """Commits into ``room`` what flows of least cost propose."""
    commits: list[Commit] = []
    left = [demand.count for demand in demands]
    solves = arcs = 0
    while solves < _MOST_SOLVES:
        waiting = (_Supply(i, demands[i], count, room.counts(demands[i])) for i, count in enumerate(left) if count)
        supplies = [supply for supply in waiting if supply.fitting.any()]
        proposal = _propose(supplies, room) if supplies else None
        if proposal is None:
            break
        solves += 1
        arcs = max(arcs, proposal.size)
        placed = 0
        for commit in _commit(proposal, supplies, room):
            commits.append(commit)
            left[commit.demand] -= commit.count
            placed += commit.count
        if placed * _WORTHWHILE < sum(supply.count for supply in supplies):
            break
    return FlowPlan(tuple(commits), solves, arcs)


def _propose(supplies: Sequence[_Supply], room: Room) -> _Proposal | None:
    """One flow of least cost through the slot network; None where the solver failed.

    Columns are generated: each class starts with arcs to its cheapest nodes, at least twice as many as it has pods;
    node potentials of the optimal flow then price all the arcs that are missing, those that would make it cheaper are
    added, and so on until none would. That is the optimum of the full network, and its size follows the batch, not
    the cluster.
    """
    batch = sum(supply.count for supply in supplies)
    mean, limits = _mean_pod(supplies, room)
    levels, widths = levels_for(min(batch, int(limits.max())))
    deciding = _deciding(supplies)
    slots = deciding.model.slot_costs(room.load(), mean, levels, deciding.policy.weights)
    arcs = [np.where(supply.fitting > 0, supply.demand.arc, _NO_ARC) for supply in supplies]
    # With a batch of D pods a class never needs more than its D cheapest nodes: the D - 1 others cannot occupy
    # them all. Few classes get all of those at once; with many, one small network more is cheaper than one large one.
    first = min(batch, _FIRST_ARCS // len(supplies))
    taken = [
        _cheapest(arc + slots[:, 0], max(first, 2 * supply.count, _FEWEST))
        for arc, supply in zip(arcs, supplies, strict=True)
    ]
    while True:
        candidates = [np.nonzero(mine)[0] for mine in taken]
        network = build(
            node_count=len(mean),
            candidates=candidates,
            arc_costs=[arc[nodes] for arc, nodes in zip(arcs, candidates, strict=True)],
            arc_capacities=[np.minimum(s.fitting[n], batch) for s, n in zip(supplies, candidates, strict=True)],
            unscheduled=[supply.prices for supply in supplies],
            slot_costs=slots,
            slot_widths=widths,
            slot_limits=np.minimum(limits, batch),
        )
        solution = solve(network)
        if solution.flows is None:
            return None
        distance = potentials(network, solution.flows)
        if distance is None or not _add_columns(taken, arcs, slots[:, 0], distance, supplies):
            return _Proposal(*decode(network, solution.flows), size=len(network.tails), cost=solution.cost)


def _cheapest(cost: Int64s, count: int) -> Bools:
    """bool[N]: the ``count`` nodes of least cost, of those that can be used at all."""
    chosen = cost < _NO_ARC
    if int(chosen.sum()) > count:
        nodes = np.argpartition(cost, count - 1)[:count]
        chosen = np.zeros(len(cost), dtype=np.bool_)
        chosen[nodes] = True
    return chosen


def _add_columns(
    taken: Sequence[Bools], arcs: Sequence[Int64s], first_slot: Int64s, distance: Int64s, supplies: Sequence[_Supply]
) -> bool:
    """Marks the arcs that would make the flow cheaper; False where there are none."""
    to_sink = distance[len(supplies) : -1]
    # A node that no class has an arc to yet still has all its slots.
    to_sink = np.where(np.logical_or.reduce(taken), to_sink, first_slot)
    found = False
    for at, (mine, arc, supply) in enumerate(zip(taken, arcs, supplies, strict=True)):
        gain = np.where(mine | (arc >= _NO_ARC), 0, np.minimum(arc + to_sink - distance[at], 0))
        if gain.any():
            found = True
            np.logical_or(mine, _cheapest(np.where(gain < 0, gain, _NO_ARC), max(supply.count, _FEWEST)), out=mine)
    return found


def _commit(proposal: _Proposal, supplies: Sequence[_Supply], room: Room) -> list[Commit]:
    """Commits what fits: nodes that can take all of their arcs first, then the others arc by arc."""
    demands = [supply.demand for supply in supplies]
    whole = room.take_all(demands, proposal.supplies, proposal.nodes, proposal.pods)
    arcs = list(zip(proposal.supplies.tolist(), proposal.nodes.tolist(), proposal.pods.tolist(), strict=True))
    commits = [Commit(supplies[at].at, node, pods) for (at, node, pods), took in zip(arcs, whole, strict=True) if took]

    def dearest_first(arc: tuple[int, int, int]) -> tuple[float, ...]:
        # Dearest to leave first, among equals the largest.
        supply = supplies[arc[0]]
        return (-float(supply.prices[0]), -supply.demand.share, *arc)

    for at, node, pods in sorted((arc for arc, took in zip(arcs, whole, strict=True) if not took), key=dearest_first):
        taken = room.take(demands[at], node, pods)
        if taken:
            commits.append(Commit(supplies[at].at, node, taken))
    return commits


def _mean_pod(supplies: Sequence[_Supply], room: Room) -> tuple[Float64s, Int64s]:
    """What a slot of each node stands for: the mean of the pods that may come to it.

    A class's pods count on a node in proportion to how few other nodes they have.

    Returns:
        float64[N, 3] what such a pod counts for; int64[N] how many of them the node has room for.
    """
    fits = np.array([supply.fitting > 0 for supply in supplies], dtype=np.float64)  # [C, N]
    pods = np.array([supply.count for supply in supplies], dtype=np.float64)
    share = fits * (pods / np.maximum(fits.sum(axis=1), 1))[:, np.newaxis]
    total = np.maximum(share.sum(axis=0), 1e-9)[:, np.newaxis]
    size = share.T @ np.array([supply.demand.size for supply in supplies]) / total
    wanted = share.T @ np.array([supply.demand.wanted for supply in supplies], dtype=np.float64) / total
    with np.errstate(divide="ignore", invalid="ignore"):
        room_for = np.where(wanted > 0, room.free / wanted, np.inf).min(axis=1)
    # A mean may be larger than what is free although some class fits: such a node still has one slot.
    limits = np.where(fits.any(axis=0), np.clip(np.nan_to_num(np.floor(room_for + 1e-9), posinf=0), 1, 2**31), 0)
    return size, limits.astype(np.int64)


def _deciding(supplies: Sequence[_Supply]) -> Demand:
    """Whose cost model and weights price the slots, which pods of several policies share: most pods decide."""
    pods: dict[str, int] = {}
    for supply in supplies:
        pods[supply.demand.policy.name] = pods.get(supply.demand.policy.name, 0) + supply.count
    name = max(pods, key=lambda policy: (pods[policy], policy))
    return next(supply.demand for supply in supplies if supply.demand.policy.name == name)
