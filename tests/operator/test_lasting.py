"""The round loop tells its worker which room does not come free while a gang is overdue, and hands holds on."""

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from support.fake_cluster.driven_ledger import DrivenLedger
from thalweg_operator.metrics import Metrics
from thalweg_operator.planning.batcher import Batcher
from thalweg_operator.planning.round_loop import RoundLoop
from thalweg_operator.planning.worker.messages import (
    RoundReply,
    RoundRequest,
    join_request,
    request_decoder,
    request_encoder,
    split_request,
)
from thalweg_operator.planning.worker.planner import run_request
from thalweg_operator.planning.worker.replica import Replica
from thalweg_operator.reservations.effects import Bind, WriteCondition

from flowcore.cluster.indexes.round_gangs import RoundGangs
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.nodes import Node
from flowcore.model.persistent_usage import ALWAYS, PersistentUsage
from flowcore.model.pods import Pod, PodClass


class Scene:
    """Cluster and ledger, the round loop and its worker in this process; bindings are done at once."""

    def __init__(self) -> None:
        self.now, self.alive, self.replica = 100_000.0, False, Replica()
        self.requests: list[RoundRequest] = []
        self.bound: dict[str, str] = {}
        self.told: dict[str, str] = {}
        self.state = DrivenLedger(lambda: self.now, handlers={Bind: self._bind, WriteCondition: self._tell})
        worker: Any = self
        self.loop = RoundLoop(
            self.state.shell, self.state.policies, worker, Metrics(), Batcher(0.001, 0.01), 60.0, 0.1,
            wall_clock=lambda: self.now,
        )  # fmt: skip
        self.state.set_namespace("ns", ())
        for at in range(4):
            self.state.upsert_node(Node(f"n{at}", allocatable=(("cpu", 8000), ("pods", 110))))

    async def start(self) -> None:
        self.alive, self.replica = True, Replica()

    async def ask(self, request: RoundRequest) -> RoundReply:
        parts = [request_decoder.decode(request_encoder.encode(part)) for part in split_request(request)]
        self.requests.append(join_request(parts))
        return run_request(self.replica, self.requests[-1])

    def _bind(self, effect: Bind) -> None:
        self.bound[effect.pod.name] = effect.node
        self.state.upsert_pod(msgspec.structs.replace(effect.pod, node_name=effect.node))

    def _tell(self, effect: WriteCondition) -> None:
        self.told[effect.pod.name] = effect.reason

    def pod(self, name: str, cpu: int, *, age: float = 5.0, priority: int = 0, **fields: Any) -> None:
        requests = (("cpu", cpu),)
        fields = {
            "scheduler_name": "thalweg",
            "created": self.now - age,
            "unschedulable_since": self.now - age,
            "usage": requests,
            **fields,
        }
        self.state.upsert_pod(Pod("ns", name, name, PodClass(requests=requests, priority=priority), **fields))

    def gang(self, name: str, count: int, age: float) -> None:
        ref = GangRef(GangKey(GangSource.THALWEG, "ns", name), GangSpec(min_member=count))
        for at in range(count):
            self.pod(f"{name}-{at}", 1000, age=age, gang=ref)

    def daemons(self) -> None:
        for at in range(4):
            self.pod(f"daemon-{at}", 100, node_name=f"n{at}", permanent=True)

    async def round(self) -> RoundRequest:
        await self.loop._round()
        return self.requests[-1]


async def test_a_gang_that_can_never_be_whole_starves_nobody() -> None:
    """32 cores on nodes with daemons: after a day of waiting newer pods are placed all the same."""
    scene = Scene()
    scene.daemons()
    scene.gang("never", 32, age=86_400)
    for at in range(20):
        scene.pod(f"new-{at}", 1000)
    request = await scene.round()
    assert request.persistent_usage == tuple(PersistentUsage(f"n{at}", ALWAYS, (("cpu", 100),), 1) for at in range(4))
    assert len(scene.bound) == 20
    assert "needs 32 pods at once" in scene.told["never-0"]


async def test_what_stays_is_told_only_when_a_gang_is_overdue() -> None:
    """A young gang asks for nothing; for an overdue one all pods are looked at once in a while, and by a new worker."""
    scene = Scene()
    scene.daemons()
    scene.pod("nobodys", 200, node_name="n0", scheduler_name="somebody-elses")
    scene.pod("higher", 300, node_name="n0", priority=7)
    scene.pod("same", 400, node_name="n0")
    scene.gang("late", 32, age=500)
    assert (await scene.round()).persistent_usage is None
    scene.now += 200
    told = (await scene.round()).persistent_usage or ()
    at_n0 = {each.priority: (each.amounts, each.pod_count) for each in told if each.node == "n0"}
    assert at_n0 == {ALWAYS: ((("cpu", 300),), 2), 7: ((("cpu", 300),), 1)}
    for seconds, again in ((1, False), (20, False), (20, True)):
        scene.now += seconds
        scene.pod("other", 100, age=seconds)
        assert ((await scene.round()).persistent_usage is not None) == again
    scene.alive = False
    request = await scene.round()
    assert (scene.requests[-2].reset, request.persistent_usage) == (True, told)
    assert scene.replica.full_request(request).persistent_usage == told


async def test_room_is_kept_for_a_while_and_then_others_are_placed() -> None:
    """The deadline is of the loop's own monotonic clock, and goes on from round to round and from worker to worker."""
    scene = Scene()
    scene.daemons()
    scene.pod("stays", 7000, node_name="n0")
    scene.gang("large", 28, age=700)
    await scene.round()
    assert "is held for it" in scene.told["large-0"]
    scene.alive = False
    scene.now += 599
    scene.pod("first", 1000)
    scene.pod("beside", 4000)
    await scene.round()
    assert "is held for it" in scene.told["large-0"]
    scene.now += 2
    await scene.round()
    assert {"first", "beside"} <= scene.bound.keys()
    assert "is held for it" not in scene.told["large-0"]


async def test_many_gangs_give_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand gangs that name each other, as many as may: the event loop has turns between them."""
    scene = Scene()
    keys = [GangKey(GangSource.THALWEG, "ns", f"g{at:04}") for at in range(1024)]
    for at, key in enumerate(keys):
        group = tuple(keys[at - at % 64 : at - at % 64 + 64])
        scene.pod(f"p{at}", 1, gang=GangRef(key, GangSpec(min_member=1, group=group)))
    steps, turns, marks = RoundGangs.steps, 0, []

    def counted(gangs: RoundGangs) -> Iterator[None]:
        marks.append(turns)
        yield from steps(gangs)
        marks.append(turns)

    monkeypatch.setattr(RoundGangs, "steps", counted)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await scene.round()
    task.cancel()
    assert marks[-1] - marks[-2] >= 5  # the marks before are those of the request that tells a new worker all
