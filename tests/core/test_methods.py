"""Methods that are left out, so that a bench can say what each is worth (bench/methods.py)."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from support.constrained_snapshots import constrained_snapshots
from support.large_snapshots import with_gangs
from support.mixed_snapshots import mixed_snapshots
from support.model import GI, node, pod, snapshot
from support.profiles import examples
from support.safety import check_plan

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.planning.methods.table import METHODS
from flowcore.planning.round import Round

_STEPS = 40
#: Others begin where these end: without them a round may leave pods that have room.
_FIRST = {"fill", "gangs by price"}
_methods = st.sampled_from(sorted(METHODS.keys() - _FIRST))
_crowds = st.one_of(mixed_snapshots(rules=True), with_gangs(constrained_snapshots()))


def stepped(crowd: Snapshot, *without: str) -> Round:
    """A round without some methods, after so many steps."""
    this = Round(crowd, without=frozenset(without))
    for _ in range(_STEPS):
        if not this.step():
            break
    return this


@settings(max_examples=examples(60), deadline=None)
@given(_crowds, _methods)
def test_without_a_method_a_plan_is_sound_and_not_its(crowd: Snapshot, method: str) -> None:
    this = stepped(crowd, method)
    assert method not in this.improved_by
    check_plan(crowd, this.result())


@settings(max_examples=examples(60), deadline=None)
@given(_crowds, _methods)
def test_without_a_method_that_improved_nothing_a_plan_is_not_worse(crowd: Snapshot, method: str) -> None:
    """So a bench need not ask what such a method is worth in a round."""
    everything = stepped(crowd)
    if method not in everything.improved_by:
        assert stepped(crowd, method).key <= everything.key


def test_a_method_that_improves_the_plan_is_named() -> None:
    """Fill places small pods first here, and large ones find no room: others do better."""
    draw = random.Random(1)
    sizes = [(draw.randrange(300, 3000, 100), draw.randrange(1, 9) * GI) for _ in range(8)]
    pods = [pod(f"p{number}", *draw.choice(sizes), created=float(number)) for number in range(60)]
    crowd = snapshot([node(f"n{number}", 6000, 16 * GI) for number in range(10)], pods, now=60.0)
    everything = stepped(crowd)
    assert everything.improved_by <= METHODS.keys()
    assert len(everything.improved_by) > 1
    best = everything.result().method
    assert best in everything.improved_by
    assert stepped(crowd, best).result().method != best
