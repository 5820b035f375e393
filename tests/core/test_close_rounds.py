"""When a round has next to nothing left to gain, so that pods need not wait for it any longer."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import given, settings
from support.constrained_snapshots import constrained_snapshots
from support.large_snapshots import with_gangs
from support.model import node, pod, snapshot
from support.profiles import examples
from support.recorded_rounds import request_of
from thalweg_operator.planning.worker.planner import run_request
from thalweg_operator.planning.worker.replica import Replica

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.gangs import Gang
from flowcore.planning.round import Round, run_round

_STEPS = 40


def stepped(crowd: Snapshot) -> Round:
    """A round that took steps until it is close, or so many."""
    this = Round(crowd)
    for _ in range(_STEPS):
        if not this.step() or this.is_close:
            break
    return this


@settings(max_examples=examples(40), deadline=None)
@given(with_gangs(constrained_snapshots()))
def test_a_close_round_places_every_pod_and_later_steps_gain_at_most_one_a_pod(crowd: Snapshot) -> None:
    this = stepped(crowd)
    if this.is_close:
        result = this.result()
        assert not result.unplaced
        assert result.cost - run_round(crowd, steps=_STEPS).cost <= len(crowd.pending)


def test_a_round_with_a_pod_that_stays_out_is_not_close() -> None:
    nodes = [node("n", 1000)]
    assert stepped(snapshot(nodes, [pod("a", 500)])).is_close
    assert not stepped(snapshot(nodes, [pod("a", 500), pod("b", 800)])).is_close
    assert not stepped(snapshot(nodes, [pod("a", 500), pod("b", 2000)])).is_close


def test_the_worker_ends_a_close_round_though_it_has_time() -> None:
    """Gangs that all fit: deciding them again and again cannot place more."""
    pods = [msgspec.structs.replace(pod(f"{name}-{at}", 100), gangs=(name,)) for name in "abcdef" for at in range(10)]
    crowd = replace(
        snapshot([node(f"n{at}", 4000) for at in range(20)], pods), gangs={name: Gang(name, 10) for name in "abcdef"}
    )
    reply = run_request(Replica(), msgspec.structs.replace(request_of(crowd), budget=1000.0))
    rest = Round(crowd)
    steps = 0
    while rest.step():
        steps += 1
    assert len(reply.placements) == len(pods)
    assert reply.steps < steps
    assert reply.cost == rest.result().cost
