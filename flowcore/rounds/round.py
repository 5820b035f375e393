"""The one main function: a snapshot in, a plan out."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from flowcore.classes import VerdictCache
from flowcore.costs import MODELS, CostModel
from flowcore.model.policies import BUILT_IN, Policy, Steering
from flowcore.model.snapshot import Int64s, PendingPod, Snapshot
from flowcore.rounds.account import Account
from flowcore.rounds.constraining import under_constraints
from flowcore.rounds.demands import demands_of
from flowcore.rounds.exact import Part, decide
from flowcore.rounds.field import Field
from flowcore.rounds.fill import plan_by_filling
from flowcore.rounds.gangs.admission import Admission, Choice, Contest, better, completed
from flowcore.rounds.gangs.choosing import Contenders
from flowcore.rounds.gangs.holding import holding_room, holds_after
from flowcore.rounds.gangs.of_constraints import with_constraint_gangs
from flowcore.rounds.gangs.units import kept_to_domains, no_units, units_of
from flowcore.rounds.plan import RoundResult
from flowcore.rounds.planner import Planner
from flowcore.rounds.replacing import replace_first
from flowcore.rounds.room import Room
from flowcore.rounds.scores import scores_of

DEFAULT_POLICIES: Mapping[str, Policy] = {BUILT_IN.name: BUILT_IN}
#: Steps of a round that nobody gives a budget: all that are quick, and some neighbourhoods.
DEFAULT_STEPS = 40
#: CP-SAT's deterministic time for deciding gangs exactly, at first and in the end: some tenths of a second, a second.
EXACT_WORK = (0.1, 0.5)
#: The same for some of them on some nodes, and how often in a row that may bring nothing.
PART_WORK, PATIENCE = 0.02, 8


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
        snapshot, self._contradictions = under_constraints(snapshot, policies)
        snapshot = with_constraint_gangs(snapshot, policies)
        self._replaced = replace_first(snapshot, policies, models, cache)
        self._snapshot = snapshot = self._replaced.rest
        self._start, self._seed = Room(snapshot), seed
        self._cache = VerdictCache.of(snapshot) if cache is None else cache
        demands = kept_to_domains(demands_of(snapshot, self._start.load(), policies, models, self._cache), snapshot)
        self._contest = Contest(demands, units_of(snapshot, demands), self._start, snapshot)
        self._admission: Admission | None = None
        self._contenders: Contenders | None = None
        self._chosen: Choice
        if self._contest.units.all:
            self._contest = holding_room(self._contest, snapshot)
            self._start = self._contest.start
            self._admission = Admission(self._contest)
        self._planner = Planner(demands, self._start, seed)
        self._steps = 0
        self._going = self._run()

    def step(self) -> bool:
        """Takes one step; False when nothing is left to do. Every step leaves a plan at least as good."""
        try:
            next(self._going)
        except StopIteration:
            return False
        self._steps += 1
        return True

    def _run(self) -> Generator[None, None, None]:
        """First which gangs are in, then where all pods go."""
        admission = self._admission
        if admission is not None:
            yield from admission.run()
            self._decide(admission.best)
        while self._planner.step():
            yield
        if admission is None:
            return
        # Pods may have made room for another gang by going elsewhere; and where it is small, all is decided at once.
        yield from self._reconsider(0, Part.all(self._contest), EXACT_WORK[0])
        fruitless, number = 0, 1
        while fruitless < PATIENCE:
            cost = self._chosen.cost
            part = Part.drawn(self._contest, self._chosen, self._seed + number)
            yield from self._reconsider(number, part, PART_WORK)
            fruitless, number = 0 if self._chosen.cost < cost else fruitless + 1, number + 1
        yield from self._reconsider(number, Part.all(self._contest), EXACT_WORK[1])

    def _reconsider(self, number: int, part: Part, work: float) -> Generator[None, None, None]:
        """Decides a part of the gangs anew, and where the pods go of what comes of it."""
        known = completed(self._contest, self._choice()[0])[0]
        found = decide(self._contest, known, part, work=work, seed=self._seed + number)
        changed = found is not None and better(self._contest, found, known)
        if not number or changed or bool((known.chosen != self._chosen.chosen).any()):
            self._decide(found if found is not None and changed else known)
            yield
            while self._planner.step():
                yield
        else:
            yield

    def _decide(self, choice: Choice) -> None:
        """From now on pods of other units than these are out."""
        self._chosen = choice
        self._contenders = contenders = Contenders.of(choice, self._contest.units)
        self._planner = Planner(
            contenders.demands,
            self._start,
            self._seed,
            required=contenders.required,
            first=(choice.method, contenders.commits_of(choice.commits), choice.room),
        )

    def _choice(self) -> tuple[Choice, int]:
        """The best plan so far, and a cost that none goes below."""
        if self._admission is not None and self._contenders is None:
            return self._admission.best, self._admission.bound
        draft, contest, bound = self._planner.conclude(), self._contest, self._planner.bound
        if self._admission is None or self._contenders is None:
            none = np.zeros(0, dtype=np.bool_)
            return Choice(draft.method, none, contest.demands, tuple(draft.commits), draft.room, draft.cost), bound
        best, commits = self._chosen, tuple(self._contenders.named(draft.commits))
        cost = contest.cost(commits, best.chosen)
        choice = replace(best, method=draft.method, commits=commits, room=draft.room, cost=cost)
        return choice, self._admission.bound

    def result(self) -> RoundResult:
        """The best plan so far."""
        choice, bound = self._choice()
        result = _result(self._snapshot, self._contest, choice, bound, self._planner, self._steps, self._cache)
        return replace(self._replaced.with_rest(result), contradictions=self._contradictions)

    def scores(self) -> Iterator[tuple[Sequence[PendingPod], Int64s]]:
        """Pods that kube-scheduler may place itself in the end, with int64[N] scores (``scores``) for all of them."""
        wanted = [demand for demand in self._contest.demands if demand.policy.steering is Steering.PREFER]
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
    """The same pods with the same filters and costs, placed one after the other: by priority, then by age; no gangs.

    This is kube-scheduler's order (plugins/queuesort); each pod gets the cheapest node at its turn and keeps it.
    """
    snapshot, against = under_constraints(snapshot, policies)
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
    draft, contest = planner.best, Contest(demands, no_units(demands), start, snapshot)
    none = np.zeros(0, dtype=np.bool_)
    choice = Choice(draft.method, none, demands, tuple(draft.commits), draft.room, draft.cost)
    result = replaced.with_rest(_result(snapshot, contest, choice, 0, planner, 0, cache))
    return replace(result, contradictions=against)


def _result(
    snapshot: Snapshot, contest: Contest, choice: Choice, bound: int, planner: Planner, steps: int, cache: VerdictCache
) -> RoundResult:
    if contest.keeper >= 0 and choice.chosen[contest.keeper]:
        # It found its place after all: what was kept for it is for others.
        choice = replace(choice, room=contest.given_back(choice.room))
        contest = contest.without_keeping()
        choice, fitting = completed(contest, choice, full=True)
    else:
        choice, fitting = completed(contest, choice)
    account = Account(snapshot, contest, choice, fitting, cache)
    return RoundResult(
        generation=snapshot.generation,
        placements=account.placements,
        left=account.left,
        cost=choice.cost,
        lower_bound=min(bound, choice.cost),
        method=choice.method,
        steps=steps,
        solves=planner.solves,
        arcs=planner.arcs,
        after=account.after,
        holds=holds_after(contest, choice.chosen, snapshot),
    )
