"""What a method of evictions is worth: rounds with all of them beside the same rounds without one."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from unittest.mock import patch

import msgspec

from flowcore.model.running_pods import EvictionKind
from flowcore.planning.evictions.joint import JointSearch
from flowcore.planning.evictions.patterns import PatternSearch
from flowcore.planning.evictions.search import search, victims
from flowcore.planning.round import RoundResult
from harness.eviction_families import Family, Plan
from harness.urgent_rounds import standing

#: What leaves a method out: it does nothing then.
METHODS: Mapping[str, Callable[[], AbstractContextManager[object]]] = {
    "integer program": partial(patch.object, search.Search, "improve", lambda *_, **__: None),
    "few pods together": partial(patch.object, JointSearch, "improve", lambda _: False),
    "patterns": partial(patch.object, PatternSearch, "improve", lambda *_: None),
    "other sets to move": partial(patch.object, search, "_MOST_RETRIES", 0),
    "smaller sets of a node": partial(patch.object, victims, "_fewer", lambda *_: _WORST),
}
_WORST = victims.Victims(-1, (), 0, (math.inf,) * 4)


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan.

    Attributes:
        standing: what plans are compared by: ``standing`` of the pods that wait and of the victims, and last the moves.
        victims: by priority, how many leave and are not moved.
        seconds: CPU time.
    """

    standing: tuple[int, ...]
    placed: int
    victims: Counter[int]
    moves: int
    cost: int
    seconds: float


class EvictionWorth(msgspec.Struct, kw_only=True):
    """A method, or all of them, in the rounds of a family.

    Attributes:
        method: that was left out; "": none.
        wins: rounds whose plan is worse without it: more pods wait, the victims are more important or more, or more
            pods move.
        losses: rounds whose plan is better so.
        placed, moves, cost, seconds: of all rounds together; CPU seconds.
        victims: by priority, in all rounds together.
    """

    family: str
    method: str
    rounds: int = 0
    wins: int = 0
    losses: int = 0
    placed: int = 0
    victims: dict[int, int] = {}
    moves: int = 0
    cost: int = 0
    seconds: float = 0.0

    def compare(self, best: Planned, plan: Planned) -> None:
        """Counts a round: its plan with all methods, and that without this one."""
        self.rounds += 1
        self.wins += best.standing < plan.standing
        self.losses += plan.standing < best.standing
        self.placed += plan.placed
        self.moves += plan.moves
        self.cost += plan.cost
        self.seconds += plan.seconds
        for priority, count in plan.victims.items():
            self.victims[priority] = self.victims.get(priority, 0) + count


def measure(family: Family, draws: int) -> Iterator[EvictionWorth]:
    """A row for all methods, and one without each of them."""
    everything = EvictionWorth(family=family.name, method="")
    without = {method: EvictionWorth(family=family.name, method=method) for method in METHODS}
    for seed in range(min(draws, family.most)):
        plan = family.draw(seed)
        best = _planned(plan)
        everything.compare(best, best)
        for method, worth in without.items():
            with METHODS[method]():
                worth.compare(best, _planned(plan))
    yield everything
    yield from without.values()


def _planned(plan: Plan) -> Planned:
    before = time.process_time()
    result = plan()
    seconds = time.process_time() - before
    moves = sum(each.kind is EvictionKind.MIGRATION for each in result.evictions)
    lost = Counter(each.pod.priority for each in result.evictions if each.kind is not EvictionKind.MIGRATION)
    return Planned((*_standing(result, lost), moves), len(result.placements), lost, moves, result.cost, seconds)


def _standing(result: RoundResult, lost: Counter[int]) -> tuple[int, ...]:
    placed = [each.pod.pod_class.priority for each in result.placements]
    left = [each.pod.pod_class.priority for each in result.unplaced]
    return standing([*placed, *left], placed, [*lost.elements()])
