"""What a method of evictions is worth: rounds with all of them beside the same rounds without one."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import msgspec

from flowcore.planning.evictions.patterns import PatternSearch
from flowcore.planning.evictions.search import search, victims
from flowcore.planning.plan_key import Loss
from flowcore.planning.round import RoundResult
from harness.eviction_families import Family, Plan
from harness.urgent_rounds import standing


@dataclass(frozen=True, slots=True)
class Method:
    """A function that decides something.

    Attributes:
        owner: class or module that has it, as ``name``.
        instead: what decides nothing in its place.
        left_out: sets that in place of the function; (): the function itself.
    """

    owner: object
    name: str
    instead: object
    left_out: tuple[object, str] | tuple[()] = ()

    def without(self) -> AbstractContextManager[object]:
        """Rounds do without it."""
        owner, name = self.left_out or (self.owner, self.name)
        return patch.object(owner, name, self.instead)

    def watched(self, asked: Callable[[], None]) -> AbstractContextManager[object]:
        """Calls ``asked`` whenever a round asks it."""
        original = getattr(self.owner, self.name)

        def watching(*args: Any, **kwargs: Any) -> Any:
            asked()
            return original(*args, **kwargs)

        return patch.object(self.owner, self.name, watching)


_WORST = victims.Victims(-1, (), 0, Loss(math.inf))
METHODS: Mapping[str, Method] = {
    "integer program": Method(search.Search, "decide_again", lambda *_: None),
    "patterns": Method(PatternSearch, "improve", lambda *_: None),
    "smaller sets of a node": Method(victims, "_fewer", lambda *_: _WORST),
}


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan.

    Attributes:
        standing: what plans are compared by: ``standing`` of the pods that wait and of the victims, and last the moves.
        victims: by priority, how many leave without a new node.
        moves: how many leave for a new node.
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
        asked: rounds that asked it; others are the same without it.
        wins: rounds whose plan is worse without it: more pods wait, the victims are more important or more, or more
            pods move.
        losses: rounds whose plan is better so.
        placed, moves, cost, seconds: of all rounds together; CPU seconds.
        victims: by priority, in all rounds together.
    """

    family: str
    method: str
    rounds: int = 0
    asked: int = 0
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
    """A row for all methods, and one without each of them that any round asked."""
    everything = EvictionWorth(family=family.name, method="")
    without = {method: EvictionWorth(family=family.name, method=method) for method in METHODS}
    for seed in range(min(draws, family.most)):
        plan, asked = family.draw(seed), set[str]()
        with ExitStack() as watches:
            for name, method in METHODS.items():
                watches.enter_context(method.watched(partial(asked.add, name)))
            best = _planned(plan)
        everything.compare(best, best)
        for name, worth in without.items():
            if name in asked:
                with METHODS[name].without():
                    other = _planned(plan)
                worth.asked += 1
            else:
                other = best
            worth.compare(best, other)
    yield everything
    yield from (worth for worth in without.values() if worth.asked)


def _planned(plan: Plan) -> Planned:
    before = time.process_time()
    result = plan()
    seconds = time.process_time() - before
    moves = sum(bool(each.to) for each in result.evictions)
    lost = Counter(each.pod.priority for each in result.evictions if not each.to)
    return Planned((*_standing(result, lost), moves), len(result.placements), lost, moves, result.cost, seconds)


def _standing(result: RoundResult, lost: Counter[int]) -> tuple[int, ...]:
    placed = [each.pod.pod_class.priority for each in result.placements]
    left = [each.pod.pod_class.priority for each in result.unplaced]
    return standing([*placed, *left], placed, [*lost.elements()])
