"""The one main function: a snapshot in, a plan out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from flowcore.classes import VerdictCache
from flowcore.costs import MODELS, CostModel
from flowcore.explain.reasons import reason_for
from flowcore.model.policies import BUILT_IN, Policy, Steering
from flowcore.model.snapshot import Int64s, PendingPod, Snapshot
from flowcore.rounds.demands import Demand, demands_of
from flowcore.rounds.field import Field
from flowcore.rounds.fill import plan_by_filling
from flowcore.rounds.plan import Left, Placement, RoundResult
from flowcore.rounds.planner import Planner
from flowcore.rounds.pricing import pod_prices, unplaced
from flowcore.rounds.replacing import replace_first
from flowcore.rounds.room import Room
from flowcore.rounds.scores import scores_of
from flowcore.rounds.waves import waves_of

DEFAULT_POLICIES: Mapping[str, Policy] = {BUILT_IN.name: BUILT_IN}
#: Steps of a round that nobody gives a budget: all that are quick, and some neighbourhoods.
DEFAULT_STEPS = 40


class Round:
    """One round in the making: take steps for as long as there is time, then ask for the result.

    The result after so many steps is the same each time: snapshot, policies, seed and steps are all it depends on.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        policies: Mapping[str, Policy] = DEFAULT_POLICIES,
        models: Mapping[str, CostModel] = MODELS,
        *,
        cache: VerdictCache | None = None,
        seed: int = 0,
    ) -> None:
        """See ``run_round``."""
        self._replaced = replace_first(snapshot, policies, models, cache)
        self._snapshot = snapshot = self._replaced.rest
        self._start = Room(snapshot)
        self._cache = VerdictCache.of(snapshot) if cache is None else cache
        self._demands = demands_of(snapshot, self._start.load(), policies, models, self._cache)
        self._planner = Planner(self._demands, self._start, seed)

    def step(self) -> bool:
        """Takes one step; False when nothing is left to do. Every step leaves a plan at least as good."""
        return self._planner.step()

    def result(self) -> RoundResult:
        """The best plan so far."""
        planner = self._planner
        result = _result(self._snapshot, self._demands, self._start, planner, self._cache)
        return self._replaced.with_rest(result)

    def scores(self) -> Iterator[tuple[Sequence[PendingPod], Int64s]]:
        """Pods that kube-scheduler may place itself in the end, with int64[N] scores (``scores``) for all of them."""
        wanted = [demand for demand in self._demands if demand.policy.steering is Steering.PREFER]
        load = self._planner.conclude().room.load() if wanted else None
        for demand in wanted:
            if load is not None:
                yield demand.group.pods, scores_of(demand, load)


def run_round(
    snapshot: Snapshot,
    policies: Mapping[str, Policy] = DEFAULT_POLICIES,
    models: Mapping[str, CostModel] = MODELS,
    *,
    cache: VerdictCache | None = None,
    steps: int = DEFAULT_STEPS,
    seed: int = 0,
) -> RoundResult:
    """Plans all pending pods of a snapshot at once.

    Args:
        snapshot: nodes, what is taken, what waits. Each pending pod's ``policy`` must be a key of ``policies``.
        models: cost models by name; each of those that ``policies`` name must be there.
        cache: what is remembered of earlier rounds; it makes a round faster and changes nothing else.
        steps: how much work to do at most, at least one.
        seed: of the choices that the search makes.

    Returns:
        A plan in which every pending pod is either placed or left with a reason. It never overcommits a resource
        and never breaks a filter; what stays out fits nowhere beside what was placed.
    """
    this = Round(snapshot, policies, models, cache=cache, seed=seed)
    for _ in range(max(1, steps)):
        if not this.step():
            break
    return this.result()


def run_one_by_one(
    snapshot: Snapshot,
    policies: Mapping[str, Policy] = DEFAULT_POLICIES,
    models: Mapping[str, CostModel] = MODELS,
) -> RoundResult:
    """The same pods with the same filters and costs, placed one after the other: by priority, then by age.

    This is kube-scheduler's order (plugins/queuesort); each pod gets the cheapest node at its turn and keeps it.
    """
    replaced = replace_first(snapshot, policies, models)
    snapshot = replaced.rest
    start = Room(snapshot)
    cache = VerdictCache.of(snapshot)
    demands = demands_of(snapshot, start.load(), policies, models, cache)
    places = {pod.key: place for place, pod in enumerate(snapshot.pending)}
    turns = sorted(
        (-demand.group.pod_class.priority, pod.created, places[pod.key], at)
        for at, demand in enumerate(demands)
        for pod in demand.group.pods
    )
    planner = Planner(demands, start)
    room = start.copy()
    planner.offer("one by one", plan_by_filling(Field.of(demands, start), ((at, 1) for *_, at in turns), room), room)
    return replaced.with_rest(_result(snapshot, demands, start, planner, cache))


def _result(
    snapshot: Snapshot, demands: Sequence[Demand], start: Room, planner: Planner, cache: VerdictCache
) -> RoundResult:
    draft = planner.conclude()
    prices = iter(pod_prices(draft.commits, demands, start.load()).tolist())
    waves = waves_of(draft.commits, demands)
    nodes = snapshot.table.nodes
    waiting = [iter(demand.group.pods) for demand in demands]
    placements = tuple(
        Placement(next(waiting[commit.demand]), nodes[commit.node].name, next(prices), next(waves))
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
        cost=draft.cost,
        lower_bound=min(planner.bound, draft.cost),
        method=draft.method,
        steps=planner.steps,
        solves=planner.solves,
        arcs=planner.arcs,
        after=after,
    )
