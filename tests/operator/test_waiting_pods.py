"""Telling pods why they wait: once a reason, again only when it changes, and never a pod that has its node."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiohttp import web
from support import virtual_time
from support.fake_api import answering, hang_up, serving
from support.fake_cluster.driven_ledger import DrivenLedger
from support.operator import until
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.writes.events import EventWriter
from thalweg_operator.delivery import conditions as module
from thalweg_operator.delivery.conditions import ConditionWriter
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations.effects import TOLD_AFTER, WriteCondition

from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass


def pod(name: str = "p", **changes: Any) -> Pod:
    defaults = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "pod_class": PodClass(), "scheduler_name": "t"}
    return Pod(
        **{
            **defaults,
            **changes,
        }
    )


class Case:
    def __init__(self) -> None:
        self.state, self.metrics = DrivenLedger(lambda: self.now), Metrics()
        self.now = 0.0
        self.patches: list[tuple[str, dict[str, Any]]] = []
        self.events: list[dict[str, Any]] = []
        self.script: list[Any] = []
        self.fails = ""
        #: Versions of pods at the API server, which refuses a write to another one.
        self.versions: dict[str, str] = {}
        self.refused = 0
        self.app = web.Application()
        self.app.router.add_patch("/api/v1/namespaces/ns/pods/{name}/status", self._patch)
        self.app.router.add_post("/api/v1/namespaces/ns/events", self._event)

    async def _patch(self, request: web.Request) -> web.StreamResponse:
        if self.script:
            return await self.script.pop(0)(request)
        body = await request.json()
        name = request.match_info["name"]
        if self.fails and name.startswith(self.fails):
            return web.json_response({"message": "a webhook fails"}, status=500)
        if name in self.versions and body["metadata"].get("resourceVersion") != self.versions[name]:
            self.refused += 1
            return web.json_response({"message": "the object has been modified"}, status=409)
        self.patches.append((name, body["status"]["conditions"][0]))
        known = self.state.pods.get(f"ns/{name}")
        if known is not None:
            condition = body["status"]["conditions"][0]
            told = {"unschedulable_message": condition["message"], "unschedulable_reason": condition["reason"]}
            self.state.upsert_pod(msgspec.structs.replace(known, **told))
        return web.json_response({"metadata": {}, "spec": {}})

    async def _event(self, request: web.Request) -> web.StreamResponse:
        self.events.append(await request.json())
        return web.json_response({}, status=201)

    async def written(self, count: int) -> None:
        await until(lambda: len(self.patches) >= count, 10, lambda: f"{count} patches; there are {self.patches}")


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[tuple[Case, ConditionWriter]]:
    made = Case()
    async with serving(made.app, tmp_path) as connection:
        events = EventWriter(connection, made.metrics)
        told = ConditionWriter(connection, made.state.shell, made.metrics, events, 500.0, backoff=Backoff(0.001, 0.01))
        tasks = [asyncio.create_task(told.run()), asyncio.create_task(events.run())]
        yield made, told
        assert not any(task.done() for task in tasks), tasks
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_since_when_a_pod_waits_is_written_where_only_its_gate_was_told(
    case: tuple[Case, ConditionWriter],
) -> None:
    """The API server's condition for a gate has no time, or the gate's; who was tried before keeps its time."""
    made, told = case
    gate = "Scheduling is blocked due to non-empty scheduling gates"
    for each in (
        pod("gated", unschedulable_message=gate, gated=True),
        pod("freed", unschedulable_message=gate),
        pod("tried", unschedulable_message="full", unschedulable_since=7.0),
    ):
        made.state.upsert_pod(each)
        told.put(WriteCondition(each, "no room", "Unschedulable"))
    made.now = 5.0
    await made.written(3)
    timed = {name.removeprefix("p-"): "lastTransitionTime" in condition for name, condition in made.patches}
    assert timed == {"gated": True, "freed": True, "tried": False}


async def test_told_after_a_moment(case: tuple[Case, ConditionWriter]) -> None:
    """One condition and one Event, in the same words."""
    made, told = case
    made.state.upsert_pod(pod())
    told.put(WriteCondition(pod(), "no room", "Unschedulable"))
    assert told._take_due(1) == []
    made.now = TOLD_AFTER
    await made.written(1)
    await until(lambda: made.events, 10, lambda: "the event")
    (_, condition), (event,) = made.patches[0], made.events
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "Unschedulable")
    assert condition["message"] == event["message"] == "no room"
    assert event["involvedObject"]["uid"] == "uid-p"


async def test_the_spec_that_a_condition_is_about(case: tuple[Case, ConditionWriter]) -> None:
    """As kube-scheduler names it, and anew where the spec has changed since and the reason has not."""
    made, told = case
    made.state.upsert_pod(pod(generation=2))
    told.put(WriteCondition(pod(generation=2), "no room", "Unschedulable", after=0.0))
    await until(lambda: made.events, 10, lambda: "the event, which is written once the condition is answered")
    assert made.patches[0][1]["observedGeneration"] == 2
    changed = pod(
        generation=3,
        unschedulable_message="no room",
        unschedulable_reason="Unschedulable",
        unschedulable_since=1.0,
        unschedulable_is_old=True,
    )
    made.state.upsert_pod(changed)
    told.put(WriteCondition(changed, "no room", "Unschedulable", after=0.0))
    made.now = 100.0
    await made.written(2)
    assert made.patches[1][1]["observedGeneration"] == 3
    told.put(WriteCondition(msgspec.structs.replace(changed, unschedulable_is_old=False), "no room", "Unschedulable"))
    assert not told._wanted


async def test_devices_that_get_ready(case: tuple[Case, ConditionWriter]) -> None:
    """The Event is kube-scheduler's of that time, and no warning."""
    made, told = case
    made.state.upsert_pod(pod())
    told.put(WriteCondition(pod(), "its devices on n are not ready: x", "WaitingForDevices", after=0.0))
    await made.written(1)
    await until(lambda: made.events, 10, lambda: "the event")
    assert [(each["reason"], each["type"]) for each in made.events] == [("BindingConditionsPending", "Normal")]


async def test_many_that_no_node_takes_are_told_at_once(case: tuple[Case, ConditionWriter]) -> None:
    """No rate holds up what autoscalers wait for; whose gang may still come is told later."""
    made, told = case
    for number in range(300):
        made.state.upsert_pod(pod(f"p{number}"))
        told.put(WriteCondition(pod(f"p{number}"), "no room", "Unschedulable", after=0.0))
    made.state.upsert_pod(pod("gang"))
    told.put(WriteCondition(pod("gang"), "1 of 2 pods are there", "GangIncomplete"))
    told._per_second = 0.0
    await made.written(300)
    assert {name for name, _ in made.patches} == {f"p{number}" for number in range(300)}


async def test_a_namespace_with_many_leaves_room_in_line(case: tuple[Case, ConditionWriter]) -> None:
    """Who begins to wait in another namespace is not behind all of them."""
    made, told = case
    for number in range(1000):
        made.state.upsert_pod(pod(f"p{number}"))
        told.put(WriteCondition(pod(f"p{number}"), "no room", "Unschedulable", after=0.0))
    assert len(told._take_due(1)) == module._IN_LINE


async def test_namespaces_take_turns_where_reasons_change(case: tuple[Case, ConditionWriter]) -> None:
    """However many pods of one namespace have another reason: as many as may be written are of all of them."""
    _, told = case
    for name, count in (("many", 50), ("few", 2)):
        for number in range(count):
            changed = pod(f"p{number}", namespace=name)
            told._written[changed.key] = module._Written(changed.uid, "before", 0.0, event_only=False)
            told.put(WriteCondition(changed, "no room", "Unschedulable", after=0.0))
    assert [key.partition("/")[0] for key, _ in told._take_due(6)] == ["many", "few", "many", "few", "many", "many"]
    assert told._take_due(0) == []


@pytest.mark.parametrize("told_before", [False, True])
async def test_due_twice_at_once(case: tuple[Case, ConditionWriter], told_before: bool) -> None:  # noqa: FBT001
    """A reason to be told a moment later, and one at once; and a new pod of the same name: each is told once."""
    made, told = case
    for each in (pod(), pod(uid="new")):
        if told_before:
            told._written["ns/p"] = module._Written("new", "before", 0.0, event_only=False)
        made.state.upsert_pod(each)
        told.put(WriteCondition(each, "no room yet", "Unschedulable"))
        told.put(WriteCondition(each, "no room", "Unschedulable", after=0.0))
    made.now = TOLD_AFTER
    await made.written(1)
    await until(lambda: not told._sending, 10, lambda: "the answer")
    assert [condition["message"] for _, condition in made.patches] == ["no room"]


async def test_pods_that_cannot_be_told_hold_up_no_others(case: tuple[Case, ConditionWriter]) -> None:
    """A webhook fails for as many pods of a namespace as may stand in line: others come in line all the same."""
    made, told = case
    made.fails = "p"
    for name in [*(f"p{number}" for number in range(module._IN_LINE)), "fine"]:
        made.state.upsert_pod(pod(name))
        told.put(WriteCondition(pod(name), "no room", "Unschedulable", after=0.0))
    await until(lambda: "ns/fine" in told._sending, 10, lambda: "a pod in line")


async def test_placed_meanwhile(case: tuple[Case, ConditionWriter]) -> None:
    """A pod that the next round placed, that is gone, or that is another one by now is told nothing."""
    made, told = case
    made.state.upsert_node(Node("n", allocatable=(("pods", 10),)))
    for name in ("reserved", "bound", "gone", "replaced", "waiting"):
        made.state.upsert_pod(pod(name))
        told.put(WriteCondition(pod(name), "no room", "Unschedulable"))
    assert made.state.reserve(pod("reserved"), "n")
    made.state.upsert_pod(pod("bound", node_name="n"))
    made.state.delete_pod("ns/gone")
    made.state.upsert_pod(pod("replaced", uid="another"))
    made.now = 1.0
    await made.written(1)
    await until(lambda: made.events and not told._wanted, 10, lambda: "all to be looked at")
    assert [name for name, _ in made.patches] == ["waiting"]


async def test_the_last_reason_counts(case: tuple[Case, ConditionWriter]) -> None:
    """Reasons that come and go while nothing is written yet are one write; one that is back to what stands is none."""
    made, told = case
    made.state.upsert_pod(pod())
    for reason in ("a", "b", "c"):
        told.put(WriteCondition(pod(), reason, "Unschedulable"))
    made.now = 1.0
    await made.written(1)
    assert made.patches[0][1]["message"] == "c"
    known = made.state.pods["ns/p"]
    told.put(WriteCondition(known, "d", "Unschedulable"))
    told.put(WriteCondition(known, "c", "Unschedulable"))
    made.now = 100.0
    made.state.upsert_pod(pod("other"))
    told.put(WriteCondition(pod("other"), "x", "Unschedulable"))
    made.now = 200.0
    await made.written(2)
    await until(lambda: not told._wanted, 10, lambda: "all to be looked at")
    assert [(name, condition["message"]) for name, condition in made.patches] == [("p", "c"), ("other", "x")]


async def test_a_reason_that_keeps_changing_is_written_rarely(case: tuple[Case, ConditionWriter]) -> None:
    """But for the second one, since the first may be that of a moment; and those never told go before it."""
    made, told = case
    made.state.upsert_pod(pod())
    told.put(WriteCondition(pod(), "of a moment", "Unschedulable"))
    made.now = 1.0
    await made.written(1)
    await until(lambda: not told._sending, 10, lambda: "the answer")
    told.put(WriteCondition(made.state.pods["ns/p"], "0", "Unschedulable"))
    assert told._take_due(1) == []
    made.now = 2.0
    await made.written(2)
    await until(lambda: not told._sending, 10, lambda: "the answer")
    for number in range(1, 6):
        made.now += 1.0
        told.put(WriteCondition(made.state.pods["ns/p"], str(number), "Unschedulable"))
        assert told._take_due(1) == []
    made.now = 2.0 + module._REWRITE_INTERVAL
    made.state.upsert_pod(pod("new"))
    told.put(WriteCondition(pod("new"), "x", "Unschedulable", after=0.0))
    await made.written(4)
    assert [(name, condition["message"]) for name, condition in made.patches[2:]] == [("new", "x"), ("p", "5")]


@pytest.mark.parametrize("trouble", [answering(500), answering(429), hang_up])
async def test_a_write_that_fails_is_tried_again(case: tuple[Case, ConditionWriter], trouble: Any) -> None:
    """While nothing else changes in the cluster no round would bring it up again for long: it must not be forgotten."""
    made, told = case
    made.script = [trouble]
    made.state.upsert_pod(pod())
    told.put(WriteCondition(pod(), "no room", "Unschedulable"))
    made.now = 1.0
    await until(lambda: not made.script, 10, lambda: "the first try")
    await made.written(1)
    assert made.patches[0][1]["message"] == "no room"


async def test_a_pod_that_may_not_be_changed(case: tuple[Case, ConditionWriter]) -> None:
    """A webhook refuses its condition: it has the Event, and rounds that find the same reason again write nothing."""
    made, told = case
    made.script = [answering(403, "webhook says no")]
    made.state.upsert_pod(pod())
    told.put(WriteCondition(pod(), "no room", "Unschedulable"))
    made.now = 1.0
    await until(lambda: made.events, 10, lambda: "the Event")
    for _ in range(5):
        made.now += 100.0
        told.put(WriteCondition(pod(), "no room", "Unschedulable"))
    assert not told._wanted
    told.put(WriteCondition(pod(), "less room", "Unschedulable"))
    made.now += 100.0
    await made.written(1)
    assert [event["message"] for event in made.events][:1] == ["no room"]


async def test_a_server_that_has_just_started_refuses_for_a_while(case: tuple[Case, ConditionWriter]) -> None:
    """Its 401 and 403 after a lost connection are not final: the pod gets its condition without a new reason."""
    made, told = case
    made.script = [hang_up, answering(401), answering(403), answering(403)]
    made.state.upsert_pod(pod())
    told.put(WriteCondition(pod(), "no room", "Unschedulable"))
    made.now = 1.0
    await made.written(1)
    assert made.patches[0][1]["message"] == "no room"
    assert not made.script


async def test_a_request_that_takes_too_long_shows_no_restart(
    case: tuple[Case, ConditionWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A webhook that hangs, and then refuses: that is final."""
    monkeypatch.setattr("thalweg_operator.api.client._SECONDS", 0.1)
    made, told = case

    async def hangs(_request: web.Request) -> web.Response:
        await asyncio.sleep(1)
        return web.Response()

    made.script = [hangs, answering(403)]
    made.state.upsert_pod(pod())
    told.put(WriteCondition(pod(), "no room", "Unschedulable"))
    made.now = 1.0
    await until(lambda: not made.script, 10, lambda: "the second try")
    monkeypatch.undo()
    await until(lambda: made.events, 10, lambda: "the Event")
    assert not made.patches


async def test_a_pod_that_is_gone_is_not_tried_again(case: tuple[Case, ConditionWriter]) -> None:
    """404 is an answer."""
    made, told = case
    made.script = [answering(404)]
    made.state.upsert_pod(pod())
    told.put(WriteCondition(pod(), "no room", "Unschedulable"))
    made.now = 1.0
    await until(lambda: not made.script, 10, lambda: "the try")
    made.state.upsert_pod(pod("next"))
    told.put(WriteCondition(pod("next"), "no room", "Unschedulable"))
    made.now = 100.0
    await made.written(1)
    assert [name for name, _ in made.patches] == ["next"]


async def test_bound_while_it_was_being_told(case: tuple[Case, ConditionWriter]) -> None:
    """Its condition stays as its binding wrote it, and no Event says that a running pod cannot be scheduled."""
    made, told = case
    made.state.upsert_node(Node("n", allocatable=(("pods", 10),)))
    made.versions["p"] = "2"
    made.state.upsert_pod(pod(resource_version="1"))
    told.put(WriteCondition(pod(), "no room", "Unschedulable"))
    made.now = 1.0
    await until(lambda: made.refused, 10, lambda: "the first try")
    made.state.upsert_pod(pod(node_name="n"))
    await until(lambda: not told._sending, 10, lambda: "another look")
    assert (made.patches, made.events) == ([], [])


async def test_changed_while_it_was_being_told(case: tuple[Case, ConditionWriter]) -> None:
    """Somebody gave it a label: it is told, once the watch shows that version of it."""
    made, told = case
    made.versions["p"] = "2"
    made.state.upsert_pod(pod(resource_version="1"))
    told.put(WriteCondition(pod(), "no room", "Unschedulable"))
    made.now = 1.0
    await until(lambda: made.refused, 10, lambda: "the first try")
    assert (made.patches, made.events) == ([], [])
    made.state.upsert_pod(pod(resource_version="2", labels=(("team", "a"),)))
    await made.written(1)
    assert made.patches[0][1]["message"] == "no room"


def test_a_new_version_alone_is_no_news_for_rounds() -> None:
    """Kubelets and controllers write to pods all the time: what a round reads is the same."""
    state = DrivenLedger(lambda: 0.0)
    state.upsert_pod(pod(resource_version="1"))
    before = state.cluster.occupancy.generation
    state.upsert_pod(pod(resource_version="2"))
    assert state.cluster.occupancy.generation == before
    assert state.pods["ns/p"].resource_version == "2"


def test_while_the_api_server_takes_no_writes_few_are_tried() -> None:
    """However many pods wait; once it does, all are told."""

    class Api:
        def __init__(self) -> None:
            self.problem: Exception | None = ConnectionLost("refused")
            self.asked = 0

        async def request(self, *_arguments: Any, **_options: Any) -> bytes:
            self.asked += 1
            if self.problem is not None:
                raise self.problem
            return b'{"spec": {}}'

    async def main(problem: Exception) -> None:
        made, api = Case(), Api()
        api.problem = problem
        loop = asyncio.get_running_loop()
        made.state = DrivenLedger(loop.time)
        connection: Any = api
        events: Any = SimpleNamespace(write=lambda *_arguments, **_options: None)
        told = ConditionWriter(connection, made.state.shell, made.metrics, events, 100.0)
        task = asyncio.create_task(told.run())
        for number in range(1000):
            made.state.upsert_pod(each := pod(f"p{number}"))
            told.put(WriteCondition(each, "no room", "Unschedulable"))
        await asyncio.sleep(60)
        assert 5 <= api.asked <= 30
        api.problem = None
        await asyncio.sleep(60)
        assert made.metrics.registry.get_sample_value("thalweg_reasons_written_total") == 1000
        task.cancel()

    for problem in (ConnectionLost("refused"), Refused(503, "no")):
        virtual_time.run(main(problem))


@pytest.mark.parametrize("latency", [0.0, 5.0])
def test_a_reason_that_holds_again_before_the_watch_shows_the_other_one(latency: float) -> None:
    """It is written again: a round tells a pod that nothing helps no second time."""

    class Api:
        def __init__(self) -> None:
            self.written: list[str] = []

        async def request(self, *_arguments: Any, body: bytes, **_options: Any) -> bytes:
            await asyncio.sleep(latency)
            self.written.append(msgspec.json.decode(body)["status"]["conditions"][0]["message"])
            return b"{}"

    async def main() -> None:
        made, api = Case(), Api()
        made.state = DrivenLedger(asyncio.get_running_loop().time)
        connection: Any = api
        events: Any = SimpleNamespace(write=lambda *_arguments, **_options: None)
        told = ConditionWriter(connection, made.state.shell, made.metrics, events, 100.0)
        task = asyncio.create_task(told.run())
        shows = pod(unschedulable_message="first", unschedulable_reason="Unschedulable")
        made.state.upsert_pod(shows)
        for reason in ("second", "first"):
            told.put(WriteCondition(shows, reason, "Unschedulable", after=0.0))
            await asyncio.sleep(0.5)
        await asyncio.sleep(latency)
        made.state.upsert_pod(msgspec.structs.replace(shows, unschedulable_message="second"))
        await asyncio.sleep(60)
        assert api.written == ["second", "first"]
        task.cancel()

    virtual_time.run(main())


async def test_a_pod_that_waits_for_a_resize_is_told_by_an_event(case: tuple[Case, ConditionWriter]) -> None:
    """It runs: its condition PodScheduled stays as it is."""
    made, told = case
    made.state.upsert_pod(pod(node_name="n", grows=(("cpu", 1),)))
    told.put(WriteCondition(made.state.cluster.waiting["ns/p"], "Insufficient cpu.", "Unschedulable"))
    made.now = TOLD_AFTER
    await until(lambda: made.events, 10, lambda: "the event")
    assert [(each["message"], each["involvedObject"]["uid"]) for each in made.events] == [
        ("Insufficient cpu.", "uid-p")
    ]
    assert not made.patches
