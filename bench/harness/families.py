"""Families of rounds by which methods are judged: of engine.py and gangs.py, the openb lists, and small drawn ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from engine import CLASSES, LOADS, MANY_CLASSES, MANY_LOAD, QUALITY_LOADS, RULED, SIZES
from gangs import resources, slots
from openb import LISTS, pods_file

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.policies import Policy
from flowcore.planning.round import run_round
from flowcore.planning.round.round import DEFAULT_POLICIES
from harness import drawn
from harness.instances import Size, make
from harness.openb_rounds import load
from harness.ruled import under_rules
from harness.small import make_small

#: Gangs of a round, and of how many sets of them.
_GANGS = {30: 3, 100: 3, 1_000: 1}
_QUALITY_SEEDS = range(1, 4)
#: Pods that come between two rounds of the trace, and steps that plan a round of which only the next matters.
_ARRIVALS, _ARRIVING_STEPS = 400, 8


@dataclass(frozen=True, slots=True)
class Family:
    """Rounds that are alike.

    Attributes:
        rounds: makes them one after the other.
        policies: of their pods.
    """

    name: str
    rounds: Callable[[], Iterator[Snapshot]]
    policies: Mapping[str, Policy]


def families(trace: Path | None) -> Iterator[Family]:
    """All families.

    Args:
        trace: folder of the openb trace; None: it is left out.
    """
    for name, rounds in _rounds(trace):
        yield Family(name, rounds, DEFAULT_POLICIES)
    for drawn_load in drawn.LOADS:
        name = f"drawn: interference, load {drawn_load}"
        yield Family(name, partial(drawn.drawn, drawn_load, drawn.unchanged), drawn.interfering())


def _rounds(trace: Path | None) -> Iterator[tuple[str, Callable[[], Iterator[Snapshot]]]]:
    for rules in drawn.TINY_RULES:
        yield f"tiny: {rules}", partial(drawn.tiny_rounds, rules)
    for drawn_load in drawn.LOADS:
        for what, change in _CHANGES.items():
            yield f"drawn: {what}, load {drawn_load}", partial(drawn.drawn, drawn_load, change)
    for quality_load in QUALITY_LOADS:
        yield f"quality: load {quality_load}", partial(_quality, quality_load)
    for count in _GANGS:
        yield f"gangs: {count:,}, one resource", partial(_slots, count)
        yield f"gangs: {count:,}, three resources", partial(_resources, count)
    for size in _sizes():
        yield f"sizes: {size}, load {size.load}", partial(_generated, size, drawn.unchanged)
    for row in RULED:
        for size in (Size(*row, load=each) for each in LOADS):
            yield f"rules: {size}, load {size.load}", partial(_generated, size, under_rules)
    if trace is not None:
        for which in LISTS:
            if pods_file(trace, which).exists():
                yield f"openb: {which}, at once", partial(_at_once, trace, which)
        yield f"openb: default, rounds of {_ARRIVALS} arrivals", partial(_arriving, trace)


_CHANGES: Mapping[str, Callable[[Snapshot], Snapshot]] = {
    "no rules": drawn.unchanged,
    "rules and gangs": under_rules,
    "priorities": drawn.with_priorities,
}


def _sizes() -> Iterator[Size]:
    """Generated clusters, those with many classes too."""
    for row, _, _ in SIZES:
        yield from (Size(*row, load=each) for each in LOADS)
    for classes in CLASSES:
        yield from (Size(5_000, 5_000, classes, 50_000, load=each) for each in LOADS)
    for classes in MANY_CLASSES:
        yield Size(1_000, 8_000, classes, 0, load=MANY_LOAD, spread=False)


def _generated(size: Size, change: Callable[[Snapshot], Snapshot]) -> Iterator[Snapshot]:
    yield change(make(size).snapshot)


def _quality(quality_load: float) -> Iterator[Snapshot]:
    yield from (make_small(quality_load, seed) for seed in _QUALITY_SEEDS)


def _slots(count: int) -> Iterator[Snapshot]:
    yield from (slots(count, 1, by_gang=by_gang).snapshot for by_gang in (False, True))


def _resources(count: int) -> Iterator[Snapshot]:
    yield from (resources(count, seed).snapshot for seed in range(1, _GANGS[count] + 1))


def _at_once(trace: Path, which: str) -> Iterator[Snapshot]:
    yield load(trace, which, aged=False)


def _arriving(trace: Path) -> Iterator[Snapshot]:
    """Rounds of so many arrivals, each after a quick plan of the one before."""
    whole = load(trace, "default", aged=True)
    state, waiting = whole, ()
    for first, last in pairwise([*range(0, len(whole.pending), _ARRIVALS), len(whole.pending)]):
        new = whole.pending[first:last]
        snapshot = replace(state, now=new[-1].created, pending=(*waiting, *new))
        yield snapshot
        result = run_round(snapshot, steps=_ARRIVING_STEPS)
        waiting = tuple(sorted((left.pod for left in result.unplaced), key=lambda pod: pod.created))
        state = result.after
