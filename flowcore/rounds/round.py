"""The one main function: a snapshot in, a plan out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from flowcore.classes import group
from flowcore.costs import MODELS, unscheduled_prices
from flowcore.explain.reasons import reason_for
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.snapshot import Int64s, Snapshot
from flowcore.rounds.commits import Commit
from flowcore.rounds.flow import plan_by_flow
from flowcore.rounds.one_by_one import Taste, plan_one_by_one
from flowcore.rounds.plan import Left, Placement, RoundResult
from flowcore.rounds.room import Demand, Room

DEFAULT_POLICIES: Mapping[str, Policy] = {BUILT_IN.name: BUILT_IN}


def run_round(snapshot: Snapshot, policies: Mapping[str, Policy] = DEFAULT_POLICIES) -> RoundResult:
    """Plans all pending pods of a snapshot at once.

    Args:
        snapshot: nodes, what is taken, what waits. Each pending pod's ``policy`` must be a key of ``policies``.

    Returns:
        A plan in which every pending pod is either placed or left with a reason. It never overcommits a resource
        and never breaks a filter; what stays out fits nowhere beside what was placed. Where the flow leaves pods
        out that had room when the round began, two one-by-one plans are tried too and the cheapest of the three is
        returned: no round is dearer than one-by-one scheduling of the same pods in the order of their price.
    """
    groups = group(snapshot.pending)
    demands = [Demand(found, snapshot) for found in groups]
    start = Room(snapshot)
    prices = unscheduled_prices(groups, policies, snapshot.now, _dearest_placement(demands, start, policies))
    waiting = [len(found.pods) for found in groups]

    room = start.copy()
    flow = plan_by_flow(demands, waiting, room, policies, prices)
    commits = list(flow.commits)
    left = _less(waiting, commits)
    commits += plan_one_by_one(demands, _by_price(demands, prices, left), room, policies)
    left = _less(waiting, commits)
    method, cost = "flow", _cost(commits, demands, start, policies, prices, waiting)
    had_room = [bool(count and start.counts(demand).any()) for count, demand in zip(left, demands, strict=True)]
    if any(had_room):
        for taste in Taste:
            other_room = start.copy()
            other = plan_one_by_one(demands, _by_price(demands, prices, waiting), other_room, policies, taste)
            other_cost = _cost(other, demands, start, policies, prices, waiting)
            if other_cost < cost:
                method, cost, commits, room = f"one-by-one, {taste.value}", other_cost, other, other_room
        left = _less(waiting, commits)
    return _result(snapshot, demands, commits, left, prices, start, room, policies, method, flow.solves, flow.arcs)


def run_one_by_one(snapshot: Snapshot, policies: Mapping[str, Policy] = DEFAULT_POLICIES) -> RoundResult:
    """The same pods with the same filters and costs, placed one after the other: by priority, then by age.

    This is kube-scheduler's order (plugins/queuesort); each pod gets the cheapest node at its turn and keeps it.
    """
    groups = group(snapshot.pending)
    demands = [Demand(found, snapshot) for found in groups]
    start = Room(snapshot)
    prices = unscheduled_prices(groups, policies, snapshot.now, _dearest_placement(demands, start, policies))
    places = {pod.key: place for place, pod in enumerate(snapshot.pending)}
    turns = sorted(
        (-found.pod_class.priority, pod.created, place, at)
        for at, found in enumerate(groups)
        for place, pod in ((places[pod.key], pod) for pod in found.pods)
    )
    room = start.copy()
    commits = plan_one_by_one(demands, [at for *_, at in turns], room, policies)
    left = _less([len(found.pods) for found in groups], commits)
    return _result(snapshot, demands, commits, left, prices, start, room, policies, "one-by-one", 0, 0)


def _dearest_placement(demands: Sequence[Demand], room: Room, policies: Mapping[str, Policy]) -> int:
    """More than any pod of the round can cost on any node it may use."""
    load, dearest = room.load(), 0
    for demand in demands:
        policy = policies[demand.group.policy]
        model = MODELS[policy.cost_model]
        if demand.allowed.any():
            arc = model.arc_costs(demand.group.pod_class, demand.size, load, policy.weights)
            dearest = max(dearest, int(arc[demand.allowed].max()))
    # Slot costs of a node that is filled to the brim, for the largest weights in the round.
    full = max(
        (
            (policies[d.group.policy].weights.least_requested + policies[d.group.policy].weights.balance)
            for d in demands
        ),
        default=0,
    )
    return dearest + 1000 * 16 * full


def _less(waiting: Sequence[int], commits: Sequence[Commit]) -> list[int]:
    left = list(waiting)
    for commit in commits:
        left[commit.demand] -= commit.count
    return left


def _by_price(demands: Sequence[Demand], prices: Sequence[Int64s], left: Sequence[int]) -> list[int]:
    """Demand of each pod that is left, dearest to leave first, among equals the largest: big pods need first choice."""
    entries = [
        (-int(price), -float(demand.size.sum()), at)
        for at, (demand, count) in enumerate(zip(demands, left, strict=True))
        for price in prices[at][len(prices[at]) - count :]
    ]
    return [at for _, _, at in sorted(entries)]


def _cost(
    commits: Sequence[Commit],
    demands: Sequence[Demand],
    start: Room,
    policies: Mapping[str, Policy],
    prices: Sequence[Int64s],
    waiting: Sequence[int],
) -> int:
    placed = sum(int(price.sum()) for price in _placement_prices(commits, demands, start, policies))
    left = _less(waiting, commits)
    return placed + sum(int(price[len(price) - count :].sum()) for price, count in zip(prices, left, strict=True))


def _placement_prices(
    commits: Sequence[Commit], demands: Sequence[Demand], start: Room, policies: Mapping[str, Policy]
) -> list[Int64s]:
    """What each pod of each commit costs, int64[count] a commit.

    Replayed in order from the start, so that plans of different methods compare.
    """
    room = start.copy()
    load = room.load()
    arcs: dict[int, Int64s] = {}
    result = []
    for commit in commits:
        demand = demands[commit.demand]
        policy = policies[demand.group.policy]
        model = MODELS[policy.cost_model]
        if commit.demand not in arcs:
            arcs[commit.demand] = model.arc_costs(demand.group.pod_class, demand.size, load, policy.weights)
        at = np.array([commit.node], dtype=np.int64)
        levels = np.arange(commit.count, dtype=np.int64)
        slots = model.slot_costs(room.load(at), demand.size[np.newaxis, :], levels, policy.weights)[0]
        result.append(slots + arcs[commit.demand][commit.node])
        room.assumed[commit.node] += demand.size.astype(np.int64) * commit.count
    return result


def _result(
    snapshot: Snapshot,
    demands: Sequence[Demand],
    commits: Sequence[Commit],
    left: Sequence[int],
    prices: Sequence[Int64s],
    start: Room,
    room: Room,
    policies: Mapping[str, Policy],
    method: str,
    solves: int,
    arcs: int,
) -> RoundResult:
    placements: list[Placement] = []
    next_pod = [0] * len(demands)
    for commit, each in zip(commits, _placement_prices(commits, demands, start, policies), strict=True):
        pods = demands[commit.demand].group.pods
        node = snapshot.table.nodes[commit.node].name
        for price in each:
            placements.append(Placement(pods[next_pod[commit.demand]], node, int(price)))
            next_pod[commit.demand] += 1
    after = room.as_snapshot()
    out: list[Left] = []
    for at, (demand, count) in enumerate(zip(demands, left, strict=True)):
        if count:
            reason = reason_for(demand.group, before=snapshot, after=after)
            pods = demand.group.pods[len(demand.group.pods) - count :]
            out.extend(
                Left(pod, reason, int(price)) for pod, price in zip(pods, prices[at][len(pods) * -1 :], strict=True)
            )
    return RoundResult(
        generation=snapshot.generation,
        placements=tuple(placements),
        left=tuple(out),
        cost=sum(p.price for p in placements) + sum(p.price for p in out),
        method=method,
        solves=solves,
        arcs=arcs,
        after=after,
    )
