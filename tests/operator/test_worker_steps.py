"""Steps of a round in the worker: the real process plans as this one does, and who is charged for them."""

from __future__ import annotations

import math

import msgspec
import pytest
from support.device_clusters import claim, devices_of, of_template, slice_of
from support.model import GI, node, pod
from thalweg_operator.planning.planned_placements import planned_placements
from thalweg_operator.planning.reports.phases import Stopwatch
from thalweg_operator.planning.worker import improving_time, planner
from thalweg_operator.planning.worker.client import WorkerClient
from thalweg_operator.planning.worker.improving_time import ImprovingTime
from thalweg_operator.planning.worker.messages import PendingEntry, RoundReply, RoundRequest
from thalweg_operator.planning.worker.meter import NamespaceMeter
from thalweg_operator.planning.worker.planner import run_request
from thalweg_operator.planning.worker.replica import Replica

from flowcore.cluster.changes import ClusterChanges
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import BUILT_IN, Delivery, only_observed
from flowcore.planning.round import Round

STEPS = 24


def crowded() -> RoundRequest:
    """More pods than fit, of twelve sizes; so many steps that a few nodes are built again and again."""
    sizes = [pod("", 300 + 217 * at % 2700, (1 + 5 * at % 8) * GI) for at in range(12)]
    return RoundRequest(
        number=1,
        generation=1,
        now=0.0,
        reset=True,
        changes=ClusterChanges(nodes=[node(f"n{at}", (4000, 8000)[at % 2], 24 * GI) for at in range(40)]),
        policies=[BUILT_IN],
        classes=[size.pod_class for size in sizes],
        signatures=[sizes[0].signature],
        pending=[PendingEntry(f"default/p{at}", at * at % 12, 0, float(at), 0) for at in range(300)],
        budget=0.0,
        steps=STEPS,
    )


async def test_the_process_plans_as_this_one_does() -> None:
    """The real process beside a round in this process; then it plans again."""
    request, client = crowded(), WorkerClient(60)

    def comparable(reply: RoundReply) -> RoundReply:
        return msgspec.structs.replace(reply, seconds=0.0, phases=[], filter_seconds=0.0, namespace_seconds={})

    expected = comparable(run_request(Replica(), request))
    assert expected.unplaced
    await client.start()
    try:
        assert comparable(await client.ask(request)) == expected
        assert comparable(await client.ask(request)).placements == expected.placements
    finally:
        await client.stop()


def test_an_operator_that_only_observes_plans_as_one_that_acts() -> None:
    """With the same steps and bounds."""
    request = crowded()
    acting = run_request(Replica(), request)
    observing = run_request(Replica(), msgspec.structs.replace(request, policies=[*only_observed(request.policies)]))
    assert acting.left_at_least is not None
    assert [(each.pod, each.node) for each in observing.placements] == [
        (each.pod, each.node) for each in acting.placements
    ]
    assert (observing.cost, observing.steps) == (acting.cost, acting.steps)
    assert observing.left_at_least == acting.left_at_least


def test_steps_that_only_improve_a_plan_are_charged_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round of many steps costs its namespaces as much as one of a single step, by a clock that counts steps."""
    taken = [0]
    step = Round.step

    def counted(this: Round) -> bool:
        taken[0] += 1
        return step(this)

    monkeypatch.setattr(Round, "step", counted)
    monkeypatch.setattr(planner, "NamespaceMeter", lambda: NamespaceMeter(lambda: float(taken[0])))
    reply = run_request(Replica(), msgspec.structs.replace(crowded(), budget=100.0))
    assert taken[0] > 10
    assert reply.namespace_seconds == {"default": pytest.approx(1.0)}


def steps_taken(
    request: RoundRequest,
    budget: float,
    monkeypatch: pytest.MonkeyPatch,
    deadline: float = 0.0,
    by_clock: float = 3.0,
) -> tuple[int, RoundReply]:
    """Steps of a round. A step takes a CPU second, and the round's start a thousand by the clock.

    Args:
        budget: in seconds.
        deadline: in seconds; 0: none.
        by_clock: seconds by the clock of a step.
    """
    taken = [0]
    step = Round.step

    def counted(this: Round) -> bool:
        taken[0] += 1
        return step(this)

    def improving(planned: Round, seconds: float, _: float, __: Stopwatch) -> ImprovingTime:
        clock = iter([0.0])
        watch = Stopwatch(lambda: next(clock, 1e3 + by_clock * taken[0]))
        return ImprovingTime(planned, seconds, deadline, watch, lambda: float(taken[0]))

    with monkeypatch.context() as patched:
        patched.setattr(Round, "step", counted)
        patched.setattr(planner, "ImprovingTime", improving)
        reply = run_request(Replica(), msgspec.structs.replace(request, steps=0, budget=budget))
    return taken[0], reply


def test_a_plan_that_leaves_pods_is_improved_for_the_whole_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """In CPU time, from the first plan on. By the clock at most four times that, and half of the deadline."""
    taken, first = steps_taken(crowded(), 0.0, monkeypatch)
    assert (taken, bool(first.unplaced)) == (1, True)
    taken, better = steps_taken(crowded(), 6.0, monkeypatch)
    assert taken == 1 + 6
    assert len(better.placements) > len(first.placements)
    assert steps_taken(crowded(), 6.0, monkeypatch, deadline=2_200.0)[0] == 1 + 6
    assert steps_taken(crowded(), 6.0, monkeypatch, deadline=2_016.0)[0] == 1 + 2
    assert steps_taken(crowded(), 6.0, monkeypatch, by_clock=8.0)[0] == 1 + 3


def test_many_placed_pods_are_worth_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of the pods that a budget is for adds the budget once more."""
    placed = len(steps_taken(crowded(), 0.0, monkeypatch)[1].placements)
    monkeypatch.setattr(improving_time, "_PODS_OF_A_BUDGET", placed / 3)
    taken, better = steps_taken(crowded(), 2.0, monkeypatch)
    assert taken == 1 + math.ceil(2.0 * len(better.placements) / (placed / 3))


def test_where_most_wait_for_the_room_of_a_few_the_time_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the whole budget where enough are placed for those that are left, and a fifth of it at least."""
    for enough, steps in ((1e-6, 2), (1e6, 10)):
        monkeypatch.setattr(improving_time, "_LEFT_FOR_EACH_PLACED", enough)
        assert steps_taken(crowded(), 10.0, monkeypatch)[0] == 1 + steps


def test_a_plan_that_leaves_nobody_ends_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the start of the round; a pod that no node could take changes nothing."""
    request = crowded()
    hopeless = msgspec.structs.replace(request.classes[0], requests=(("cpu", 10**9),))
    classes = [*request.classes, hopeless]
    pending = [*request.pending[:60], PendingEntry("default/hopeless", len(classes) - 1, 0, 0.0, 0)]
    sized = msgspec.structs.replace(request, classes=classes, pending=pending)
    taken, reply = steps_taken(sized, 999.0, monkeypatch)
    assert (taken, len(reply.placements), len(reply.unplaced)) == (1, 60, 1)


def test_claims_of_pods_that_we_bind_are_told() -> None:
    """What each has or gets; kube-scheduler chooses for the pods that it binds."""
    objects = devices_of([slice_of("n0", 3)], [claim(name, owner=name) for name in ("a", "b", "c")])
    steered = msgspec.structs.replace(BUILT_IN, name="steered", delivery=Delivery.EXTENDER)
    changes = ClusterChanges(nodes=[node("n0")])
    objects.add_all(changes)
    request = RoundRequest(
        number=1,
        generation=1,
        now=0.0,
        reset=True,
        changes=changes,
        policies=[BUILT_IN, steered],
        classes=[PodClass(devices=of_template(name)) for name in ("a", "b", "c")] + [PodClass()],
        signatures=[pod("").signature],
        pending=[
            PendingEntry(f"default/{name}", place, policy, 0.0, 0)
            for place, (name, policy) in enumerate((("a", 0), ("b", 0), ("c", 1), ("plain", 0)))
        ],
        budget=0.0,
        steps=1,
    )
    reply = run_request(Replica(), request)
    assert len(reply.placements) == 4
    claims = dict(reply.claims)
    assert sorted(claims) == [0, 1]
    assert {each.name for planned in claims.values() for each in planned} == {"a", "b"}
    devices = [each.allocation.devices[0].device for planned in claims.values() for each in planned]
    assert len(set(devices)) == 2
    names = ("a", "b", "c", "plain")
    waiting = [Pod("default", name, name, each) for name, each in zip(names, request.classes, strict=True)]
    planned = {each.pod.name: each.device_claims for each in planned_placements(request, reply, waiting)}
    assert planned == {"a": claims[0], "b": claims[1], "c": (), "plain": ()}
    reply.claims = []
    assert {each.pod.name: each.device_claims for each in planned_placements(request, reply, waiting)}["a"] is None
