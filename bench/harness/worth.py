"""What a method is worth: rounds with all methods beside the same rounds without it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.policies import Policy
from flowcore.planning.methods.table import METHODS
from flowcore.planning.round import Round
from harness.families import Family

#: Pods of a round as clusters have them: of fewer or more it is not counted who made the plan.
_REALISTIC = range(10, 20_001)
#: A plan is dearer if it costs more by more than one part in this number.
_DEARER = 10_000


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan.

    Attributes:
        method: that made it (``RoundResult.method``).
        waits: what waits, level by level from the highest: the first thing that plans are compared by.
    """

    method: str
    waits: tuple[int, ...]
    placed: int
    cost: int
    steps: int
    improved_by: frozenset[str]

    def is_better(self, plan: Planned) -> bool:
        """Whether it leaves less, level by level, or leaves as much and costs less by more than 0.01 %."""
        return self.waits < plan.waits or (self.waits == plan.waits and (plan.cost - self.cost) * _DEARER > self.cost)


class Worth(msgspec.Struct, kw_only=True):
    """A method, or all of them, in the rounds of a family.

    Attributes:
        method: that was left out; "": none.
        rounds: of the family.
        realistic: those with 10 to 20,000 pods.
        made: realistic rounds whose plan it made; of a row without a method all.
        steps: of all rounds together. A round without a method has as many as with it: its steps go to the others.
        improved: rounds in which its plan was better than the best before it.
        wins: rounds whose plan leaves more, or costs more by over 0.01 %, without it.
        losses: rounds whose plan leaves less, or costs less by over 0.01 %, without it.
        cost, placed: in all rounds together.
        equal_cost: cost with all methods of the rounds in which as much waits without it, level by level.
        dearer: what these rounds cost more without it.
        more_wait: pods that wait without it more than with it, of the highest level that differs in each round. A pod
            counts once for each time that it is as dear to leave as the cheapest of its level.
    """

    family: str
    method: str
    rounds: int = 0
    realistic: int = 0
    made: int = 0
    steps: int = 0
    improved: int = 0
    wins: int = 0
    losses: int = 0
    cost: int = 0
    placed: int = 0
    equal_cost: int = 0
    dearer: int = 0
    more_wait: int = 0

    @property
    def share(self) -> float:
        """How much dearer rounds are in which as much waits, as a part of their cost."""
        return self.dearer / self.equal_cost if self.equal_cost else 0.0

    def compare(self, best: Planned, plan: Planned) -> None:
        """Counts a round: its plan with all methods, and that without this one."""
        self.rounds += 1
        self.steps += plan.steps
        self.cost += plan.cost
        self.placed += plan.placed
        self.wins += best.is_better(plan)
        self.losses += plan.is_better(best)
        differing = (more - less for more, less in zip(plan.waits, best.waits, strict=True) if more != less)
        more_wait = next(differing, 0)
        self.more_wait += more_wait
        if not more_wait:
            self.equal_cost += best.cost
            self.dearer += plan.cost - best.cost


def measure(family: Family, seconds: float) -> Iterator[Worth]:
    """A row for all methods, and one for each that ever made a plan which was better than the best before it.

    Without any other method the plan would be the same: what is never taken changes nothing. With all methods a round
    takes steps for so many CPU seconds, and without one as many steps, whatever time they take. So no figure depends on
    the clock but how many steps there are.
    """
    everything = Worth(family=family.name, method="")
    without = {method: Worth(family=family.name, method=method) for method in METHODS}
    for snapshot in family.rounds():
        best = _planned(snapshot, family.policies, frozenset(), seconds=seconds)
        everything.compare(best, best)
        is_realistic = len(snapshot.pending) in _REALISTIC
        for method, worth in (("", everything), *without.items()):
            worth.realistic += is_realistic
            worth.made += is_realistic and method in ("", best.method)
        for method, worth in without.items():
            plan = best
            if method in best.improved_by:
                plan = _planned(snapshot, family.policies, frozenset((method,)), steps=best.steps)
                worth.improved += 1
            worth.compare(best, plan)
    yield everything
    yield from (worth for worth in without.values() if worth.improved)


def _planned(
    snapshot: Snapshot,
    policies: Mapping[str, Policy],
    without: frozenset[str],
    *,
    seconds: float | None = None,
    steps: int = 0,
) -> Planned:
    """A plan after some CPU seconds, or after a number of steps where ``seconds`` is None."""
    until = None if seconds is None else time.process_time() + seconds
    this, taken = Round(snapshot, policies, without=without), 0
    while this.step():
        taken += 1
        if taken >= steps if until is None else time.process_time() >= until:
            break
    result = this.result()
    key = this.key
    # Of one level pods count.
    left = [count for level in key.levels for count in (level.waiting, level.strays)] or [len(result.unplaced)]
    return Planned(
        result.method, (key.duties, *left), len(result.placements), result.cost, taken, frozenset(this.improved_by)
    )
