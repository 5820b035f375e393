"""The one main function: a snapshot in, a plan out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flowcore.classes import VerdictCache
from flowcore.explain.reasons import reason_for
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.snapshot import Snapshot
from flowcore.rounds.commits import Commit
from flowcore.rounds.demands import Demand, demands_of
from flowcore.rounds.flow import plan_by_flow
from flowcore.rounds.one_by_one import Taste, plan_one_by_one
from flowcore.rounds.plan import Left, Placement, RoundResult
from flowcore.rounds.pricing import pod_prices, total_cost, unplaced
from flowcore.rounds.room import Room

DEFAULT_POLICIES: Mapping[str, Policy] = {BUILT_IN.name: BUILT_IN}


@dataclass(frozen=True, slots=True)
class _Draft:
    """A plan that one method made, with the room it leaves."""

    method: str
    commits: Sequence[Commit]
    room: Room
    solves: int = 0
    arcs: int = 0


def run_round(
    snapshot: Snapshot, policies: Mapping[str, Policy] = DEFAULT_POLICIES, cache: VerdictCache | None = None
) -> RoundResult:
    """Plans all pending pods of a snapshot at once.

    Args:
        snapshot: nodes, what is taken, what waits. Each pending pod's ``policy`` must be a key of ``policies``.
        cache: what is remembered of earlier rounds; it makes a round faster and changes nothing else.

    Returns:
        A plan in which every pending pod is either placed or left with a reason. It never overcommits a resource
        and never breaks a filter; what stays out fits nowhere beside what was placed. Where the flow leaves pods
        out that had room when the round began, two one-by-one plans are tried too and the cheapest of the three is
        returned: no round is dearer than one-by-one scheduling of the same pods in the order of their price.
    """
    start = Room(snapshot)
    load = start.load()
    cache = cache or VerdictCache.of(snapshot)
    demands = demands_of(snapshot, policies, cache)
    room = start.copy()
    flow = plan_by_flow(demands, room)
    commits = list(flow.commits)
    commits += plan_one_by_one(demands, _by_price(demands, unplaced(commits, demands)), room)
    draft = _Draft("flow", commits, room, flow.solves, flow.arcs)
    if any(count and demand.counts.any() for count, demand in zip(unplaced(commits, demands), demands, strict=True)):
        everyone = _by_price(demands, [demand.count for demand in demands])
        drafts = [draft]
        for taste in Taste:
            room = start.copy()
            commits = plan_one_by_one(demands, everyone, room, taste)
            drafts.append(_Draft(f"one-by-one, {taste.value}", commits, room, flow.solves, flow.arcs))
        draft = min(drafts, key=lambda each: total_cost(each.commits, demands, load))
    return _result(snapshot, demands, start, draft, cache)


def run_one_by_one(snapshot: Snapshot, policies: Mapping[str, Policy] = DEFAULT_POLICIES) -> RoundResult:
    """The same pods with the same filters and costs, placed one after the other: by priority, then by age.

    This is kube-scheduler's order (plugins/queuesort); each pod gets the cheapest node at its turn and keeps it.
    """
    start = Room(snapshot)
    cache = VerdictCache.of(snapshot)
    demands = demands_of(snapshot, policies, cache)
    places = {pod.key: place for place, pod in enumerate(snapshot.pending)}
    turns = sorted(
        (-demand.group.pod_class.priority, pod.created, places[pod.key], at)
        for at, demand in enumerate(demands)
        for pod in demand.group.pods
    )
    room = start.copy()
    commits = plan_one_by_one(demands, [at for *_, at in turns], room)
    return _result(snapshot, demands, start, _Draft("one-by-one", commits, room), cache)


def _by_price(demands: Sequence[Demand], left: Sequence[int]) -> list[int]:
    """Demand of each pod that is left, dearest to leave first, among equals the largest: big pods need first choice."""
    entries = [
        (-int(price), -demand.share, at)
        for at, (demand, count) in enumerate(zip(demands, left, strict=True))
        for price in demand.prices_of_last(count)
    ]
    return [at for *_, at in sorted(entries)]


def _result(
    snapshot: Snapshot, demands: Sequence[Demand], start: Room, draft: _Draft, cache: VerdictCache
) -> RoundResult:
    prices = iter(pod_prices(draft.commits, demands, start.load()).tolist())
    nodes = snapshot.table.nodes
    waiting = [iter(demand.group.pods) for demand in demands]
    placements = tuple(
        Placement(next(waiting[commit.demand]), nodes[commit.node].name, next(prices))
        for commit in draft.commits
        for _ in range(commit.count)
    )
    after = draft.room.as_snapshot((placement.node, placement.pod.kind) for placement in placements)
    left: list[Left] = []
    for demand, count, pods in zip(demands, unplaced(draft.commits, demands), waiting, strict=True):
        if count:
            reason = reason_for(demand.group, before=snapshot, after=after, ask=cache.ask)
            left.extend(
                Left(pod, reason, price) for pod, price in zip(pods, demand.prices_of_last(count).tolist(), strict=True)
            )
    return RoundResult(
        generation=snapshot.generation,
        placements=placements,
        left=tuple(left),
        cost=sum(p.price for p in placements) + sum(p.price for p in left),
        method=draft.method,
        solves=draft.solves,
        arcs=draft.arcs,
        after=after,
    )
