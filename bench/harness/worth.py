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

#: A plan is dearer if it costs more by more than one part in this number.
_DEARER = 10_000


class Worth(msgspec.Struct, kw_only=True):
    """A method, or all of them, in the rounds of a family.

    Attributes:
        method: that was left out; "": none.
        rounds: of the family.
        steps: of all rounds together. A round without a method has as many as with it: its steps go to the others.
        improved: rounds in which its plan was better than the best before it.
        wins: rounds whose plan leaves more, or costs more by over 0.01 %, without it.
        losses: rounds whose plan leaves less, or costs less by over 0.01 %, without it.
        cost, placed: in all rounds together.
        worse: by how much the cost is higher without it, as a part of it.
        fewer: pods that are placed less without it.
    """

    family: str
    method: str
    rounds: int = 0
    steps: int = 0
    improved: int = 0
    wins: int = 0
    losses: int = 0
    cost: int = 0
    placed: int = 0
    worse: float = 0.0
    fewer: int = 0


@dataclass(frozen=True, slots=True)
class _Planned:
    """A plan. ``standing``: what plans are compared by: what waits by levels, and the cost."""

    standing: tuple[int, ...]
    placed: int
    cost: int
    steps: int
    improved_by: frozenset[str]


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
        everything.rounds += 1
        everything.steps += best.steps
        everything.cost += best.cost
        everything.placed += best.placed
        for method, worth in without.items():
            plan = best
            if method in best.improved_by:
                plan = _planned(snapshot, family.policies, frozenset((method,)), steps=best.steps)
                worth.improved += 1
            worth.rounds += 1
            worth.steps += plan.steps
            worth.cost += plan.cost
            worth.placed += plan.placed
            worth.wins += _is_better(best, plan)
            worth.losses += _is_better(plan, best)
    yield everything
    for worth in without.values():
        worth.worse = (worth.cost - everything.cost) / everything.cost if everything.cost else 0.0
        worth.fewer = everything.placed - worth.placed
        if worth.improved:
            yield worth


def _planned(
    snapshot: Snapshot,
    policies: Mapping[str, Policy],
    without: frozenset[str],
    *,
    seconds: float | None = None,
    steps: int = 0,
) -> _Planned:
    """A plan after some CPU seconds, or after a number of steps where ``seconds`` is None."""
    until = None if seconds is None else time.process_time() + seconds
    this, taken = Round(snapshot, policies, without=without), 0
    while this.step():
        taken += 1
        if taken >= steps if until is None else time.process_time() >= until:
            break
    result = this.result()
    return _Planned(this.standing, len(result.placements), result.cost, taken, frozenset(this.improved_by))


def _is_better(plan: _Planned, other: _Planned) -> bool:
    """Whether a plan leaves less, level by level, or leaves as much and costs less by more than 0.01 %."""
    *waits, cost = plan.standing
    *other_waits, other_cost = other.standing
    return waits < other_waits or (waits == other_waits and (other_cost - cost) * _DEARER > cost)
