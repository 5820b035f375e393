"""When a round has next to nothing left to gain, so that pods need not wait for it any longer."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import given, settings
from support.constrained_snapshots import constrained_snapshots
from support.eviction_clusters import HOSTNAME, keeps_apart
from support.large_snapshots import with_gangs
from support.model import node, pod, snapshot
from support.profiles import examples
from support.recorded_rounds import request_of
from thalweg_operator.planning.worker.planner import run_request
from thalweg_operator.planning.worker.replica import Replica

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.gangs import Gang
from flowcore.model.nodes import Node
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


def test_pods_that_no_plan_places_promise_nothing() -> None:
    """Too large ones, gangs larger than all nodes, and more of a kind than its own rule lets in."""
    nodes = [node("a", 1000), node("b", 1000)]
    fits = [pod("fits", 100)]
    assert stepped(snapshot(nodes, [*fits, pod("large", 2000)])).outlook().left == 0
    assert stepped(snapshot(nodes, [*fits, pod("first", 800), pod("next", 800), pod("last", 800)])).outlook().left == 0
    members = [msgspec.structs.replace(pod(f"m{number}", 700), gangs=("g",)) for number in range(3)]
    crowd = replace(snapshot(nodes, [*fits, *members]), gangs={"g": Gang("g", 3)})
    assert stepped(crowd).outlook().left == 0
    smaller = replace(crowd, gangs={"g": Gang("g", 2)})
    assert Round(smaller).outlook().left == 3, "a plan may place two of the gang, and the pod beside it"
    alone = msgspec.structs.replace(fits[0].signature, labels=(("app", "a"),), constraints=keeps_apart("a"))
    three = [msgspec.structs.replace(pod(f"s{number}", 10), signature=alone) for number in range(3)]
    assert stepped(snapshot([with_hostname(each) for each in nodes], three)).outlook().left == 0


def with_hostname(each: Node) -> Node:
    """The node with the label that all nodes have."""
    return msgspec.structs.replace(each, labels=((HOSTNAME, each.name),))


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
