"""Planning by min-cost flow: solve, commit what truly fits, solve again for the rest.

A slot counts pods, not resources: a node with three slots may be handed a big pod and two that no longer fit beside it
(camsas/firmament#71). So flows are a proposal. What each node truly has room for is committed, and
the rest goes into the next flow with the room that is left, until a flow brings next to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.costs import MODELS
from flowcore.costs.model import Float64s, Load
from flowcore.model.policies import CostWeights, Policy
from flowcore.model.snapshot import Int64s
from flowcore.network import build, decode, levels_for
from flowcore.rounds.commits import Commit
from flowcore.rounds.room import Demand, Room
from flowcore.solve import solve

#: A flow that commits less than one in this many of its pods is the last: one-by-one finishes faster.
_WORTHWHILE = 50
_MOST_SOLVES = 12


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """Commits of all flows in order, and what they took."""

    commits: tuple[Commit, ...]
    solves: int
    arcs: int


def plan_by_flow(
    demands: Sequence[Demand],
    waiting: Sequence[int],
    room: Room,
    policies: Mapping[str, Policy],
    prices: Sequence[Int64s],
) -> FlowPlan:
    """Commits into ``room`` what flows of least cost propose.

    Args:
        waiting: pods of each demand that still have no node.
        prices: per demand, unscheduled prices of all its pods, falling: the first to go is the dearest to leave.
    """
    commits: list[Commit] = []
    left = list(waiting)
    solves = arcs = 0
    while sum(left) and solves < _MOST_SOLVES:
        active = [i for i, count in enumerate(left) if count]
        counts = [room.counts(demands[i]) for i in active]
        active_counts = [(i, c) for i, c in zip(active, counts, strict=True) if c.any()]
        if not active_counts:
            break
        active, counts = [i for i, _ in active_counts], [c for _, c in active_counts]
        chosen = [demands[i] for i in active]
        supply = [left[i] for i in active]
        remaining = [prices[i][len(prices[i]) - left[i] :] for i in active]
        proposal = _propose(chosen, supply, counts, room.load(), room, policies, remaining)
        if proposal is None:
            break
        solves += 1
        classes, nodes, amounts, size = proposal
        arcs = max(arcs, size)
        placed = 0
        whole = room.take_all(chosen, classes, nodes, amounts)
        for at, node, amount in zip(classes[whole], nodes[whole], amounts[whole], strict=True):
            commits.append(Commit(active[at], int(node), int(amount)))
            left[active[at]] -= int(amount)
            placed += int(amount)
        for at, node, amount in _dearest_first(classes[~whole], nodes[~whole], amounts[~whole], chosen, remaining):
            taken = room.take(chosen[at], node, amount)
            if taken:
                commits.append(Commit(active[at], node, taken))
                left[active[at]] -= taken
                placed += taken
        if placed * _WORTHWHILE < sum(supply):
            break
    return FlowPlan(tuple(commits), solves, arcs)


def _propose(
    demands: Sequence[Demand],
    supply: Sequence[int],
    counts: Sequence[Int64s],
    load: Load,
    room: Room,
    policies: Mapping[str, Policy],
    prices: Sequence[Int64s],
) -> tuple[Int64s, Int64s, Int64s, int] | None:
    """One flow: class, node and pods of each arc it uses, and the network's size; None where the solver failed."""
    batch = sum(supply)
    mean, limits = _mean_pod(demands, supply, counts, room)
    levels, widths = levels_for(min(batch, int(limits.max())))
    weights = _mean_weights(demands, supply, policies)
    model = MODELS[policies[demands[0].group.policy].cost_model]
    slots = model.slot_costs(load, mean, levels, weights)
    candidates, costs, capacities = [], [], []
    for demand, fitting in zip(demands, counts, strict=True):
        policy = policies[demand.group.policy]
        cost = MODELS[policy.cost_model].arc_costs(demand.group.pod_class, demand.size, load, policy.weights)
        nodes = np.nonzero(fitting)[0]
        if len(nodes) > batch:
            # With a batch of D pods a class never needs more than its D cheapest nodes: the D - 1 others cannot
            # occupy them all. The cost follows the batch, not the cluster.
            total = cost[nodes] + slots[nodes, 0]
            nodes = np.sort(nodes[np.argpartition(total, batch - 1)[:batch]])
        candidates.append(nodes)
        costs.append(cost[nodes])
        capacities.append(np.minimum(fitting[nodes], batch))
    network = build(
        node_count=len(mean),
        candidates=candidates,
        arc_costs=costs,
        arc_capacities=capacities,
        unscheduled=prices,
        slot_costs=slots,
        slot_widths=widths,
        slot_limits=np.minimum(limits, batch),
    )
    solution = solve(network)
    if solution.flows is None:
        return None
    return *decode(network, solution.flows), len(network.tails)


def _mean_pod(
    demands: Sequence[Demand], supply: Sequence[int], counts: Sequence[Int64s], room: Room
) -> tuple[Float64s, Int64s]:
    """What a slot of each node stands for: the mean of the pods that may come to it.

    A class's pods count on a node in proportion to how few other nodes they have.

    Returns:
        float64[N, 2] cpu and memory of such a pod; int64[N] how many of them the node has room for.
    """
    fits = np.array([count > 0 for count in counts], dtype=np.float64)  # [C, N]
    spread = np.array(supply, dtype=np.float64) / np.maximum(fits.sum(axis=1), 1)
    share = fits * spread[:, np.newaxis]
    total = np.maximum(share.sum(axis=0), 1e-9)[:, np.newaxis]
    size = share.T @ np.array([demand.size for demand in demands]) / total
    wanted = share.T @ np.array([demand.wanted for demand in demands], dtype=np.float64) / total
    with np.errstate(divide="ignore", invalid="ignore"):
        room_for = np.where(wanted > 0, room.free / wanted, np.inf).min(axis=1)
    limits = np.where(fits.any(axis=0), np.clip(np.nan_to_num(np.floor(room_for + 1e-9), posinf=0), 1, 2**31), 0)
    return size, limits.astype(np.int64)


def _mean_weights(demands: Sequence[Demand], supply: Sequence[int], policies: Mapping[str, Policy]) -> CostWeights:
    """Weights of the slots, which pods of several policies share: the policy with most pods in the batch decides."""
    pods: dict[str, int] = {}
    for demand, count in zip(demands, supply, strict=True):
        pods[demand.group.policy] = pods.get(demand.group.policy, 0) + count
    return policies[max(pods, key=lambda name: (pods[name], name))].weights


def _dearest_first(
    classes: Int64s, nodes: Int64s, amounts: Int64s, demands: Sequence[Demand], prices: Sequence[Int64s]
) -> list[tuple[int, int, int]]:
    """Arcs of nodes that cannot take all: those dearest to leave first, among equals the largest."""
    arcs = [(int(c), int(n), int(a)) for c, n, a in zip(classes, nodes, amounts, strict=True)]
    return sorted(arcs, key=lambda arc: (-int(prices[arc[0]][0]), *(-s for s in demands[arc[0]].size), arc[1]))
