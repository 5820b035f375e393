"""Steps of a round in the worker: the real process plans as this one does, and who is charged for them."""

from __future__ import annotations

import msgspec
import pytest
from support.model import GI, node, pod
from thalweg_operator.planning.worker import planner
from thalweg_operator.planning.worker.client import WorkerClient
from thalweg_operator.planning.worker.messages import PendingEntry, RoundReply, RoundRequest
from thalweg_operator.planning.worker.meter import NamespaceMeter
from thalweg_operator.planning.worker.planner import run_request
from thalweg_operator.planning.worker.replica import Replica

from flowcore.cluster.changes import ClusterChanges
from flowcore.model.policies import BUILT_IN
from flowcore.planning.round import Round

STEPS = 24


def crowded() -> RoundRequest:
    """More pods than fit, of twelve sizes; so many steps that neighbourhoods are searched."""
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
