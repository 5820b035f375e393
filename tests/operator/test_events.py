"""Events are written at a steady rate, in turns between namespaces; what is too much is dropped and counted."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.fake_api import Answer, answering, hang_up, serving
from support.operator import until
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.writes import events as module
from thalweg_operator.api.writes.events import BURST, EventWriter, Subject
from thalweg_operator.metrics import Metrics

from flowcore.model.pods import Pod, PodClass


class Case:
    """A writer whose portions the test hands out."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.events: list[dict[str, Any]] = []
        self.script: list[Answer] = []
        self.posts = 0
        self.app = web.Application()
        self.app.router.add_post("/api/v1/namespaces/{namespace}/events", self._post)

    async def _post(self, request: web.Request) -> web.StreamResponse:
        self.posts += 1
        if self.script:
            return await self.script.pop(0)(request)
        self.events.append(await request.json())
        return web.json_response({}, status=201)

    def count(self, outcome: str, reason: str = "Scheduled") -> float:
        labels = {"reason": reason, "outcome": outcome}
        return self.metrics.registry.get_sample_value("thalweg_events_total", labels) or 0.0

    def write(self, namespace: str, count: int, *, warning: bool = False) -> int:
        """How many there was room for."""
        pods = [Pod(namespace, f"p{number}", f"u{number}", PodClass()) for number in range(count)]
        return sum(self.writer.write(pod, "Scheduled", "yes", action="Binding", warning=warning) for pod in pods)

    async def written(self, count: int) -> None:
        await until(lambda: len(self.events) >= count, 10, lambda: f"{count} events; there are {len(self.events)}")


@pytest.fixture
async def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Case]:
    monkeypatch.setattr(module, "_BATCH_INTERVAL", 1e6)
    made = Case()
    async with serving(made.app, tmp_path) as connection:
        made.writer = EventWriter(connection, made.metrics, backoff=Backoff(0.001, 0.01))
        task = asyncio.create_task(made.writer.run())
        try:
            yield made
            assert not task.done(), task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_what_an_event_says(case: Case) -> None:
    """What ``kubectl describe pod`` shows of kube-scheduler's own: type, reason, source, message, and the pod."""
    pod = Pod("ns", "p", "u", PodClass())
    case.writer.write(pod, "Scheduled", "Successfully assigned ns/p to n" + "." * 2000, action="Binding")
    case.writer.send_batch()
    await case.written(1)
    (event,) = case.events
    assert (event["type"], event["reason"], event["action"]) == ("Normal", "Scheduled", "Binding")
    assert event["message"].startswith("Successfully assigned ns/p to n.")
    assert len(event["message"]) == 1024
    assert (event["source"], event["reportingComponent"]) == ({"component": "thalweg"}, "thalweg")
    assert event["involvedObject"]["uid"] == "u"
    assert case.count("written") == 1


async def test_a_burst_is_written_slowly(case: Case) -> None:
    """While more come than a portion holds, a portion is one Event: bindings need the API server."""
    case.write("ns", 100)
    case.writer.send_batch()
    await case.written(1)
    case.write("ns", 100)
    case.writer.send_batch()
    await case.written(2)
    case.writer.send_batch()
    await case.written(12)
    assert case.posts == 12


async def test_namespaces_take_turns(case: Case) -> None:
    """One with few is not behind one with many."""
    case.write("many", 500)
    case.write("few", 2)
    for _ in range(5):
        case.writer.send_batch()
    await case.written(1 + 4 * 10)
    assert Counter(event["metadata"]["namespace"] for event in case.events)["few"] == 2


async def test_what_is_too_much_is_dropped_and_counted(case: Case) -> None:
    """Of one namespace and of all; the others lose nothing to one of them."""
    assert case.write("a", module.MAX_PENDING_PER_NAMESPACE + 7) == module.MAX_PENDING_PER_NAMESPACE
    assert case.count("dropped") == 7
    for namespace in "bcde":
        case.write(namespace, module.MAX_PENDING_PER_NAMESPACE)
    assert case.write("f", 1) == 0
    assert len(case.writer._queue) + case.writer._pending.length == module.MAX_PENDING


async def test_room_comes_back(case: Case) -> None:
    """Written, failed or given up: nothing is counted for ever."""
    case.script = random.Random(1).choices([answering(400), answering(500), hang_up, answering(404)], k=40)
    case.write("ns", 30, warning=True)
    await until(lambda: not case.writer._queue_lengths, 20, lambda: f"no Event in line: {case.writer._queue_lengths}")
    assert case.count("written") + case.count("failed") == 30
    assert case.count("written") == len(case.events) > 0


async def test_an_event_is_not_tried_for_ever(case: Case) -> None:
    """The API server is away for long: it is given up, and counted."""
    case.script = [answering(500)] * 100
    case.write("ns", 1, warning=True)
    await until(lambda: case.count("failed"), 10, lambda: "it to be given up")
    assert case.posts == module._MAX_ATTEMPTS


async def test_warnings_do_not_wait_for_their_portion(case: Case) -> None:
    """A reason why a pod waits is not behind thousands of pods that are fine."""
    case.write("ns", 900)
    case.write("ns", 3, warning=True)
    await case.written(3)
    assert {event["type"] for event in case.events} == {"Warning"}


async def test_one_object_gets_few_events(case: Case) -> None:
    """What is beyond the limit of an object is dropped and counted; other objects get theirs."""
    pod = Pod("ns", "busy", "busy-uid", PodClass())
    given = [case.writer.write(pod, "Scheduled", f"{number}", action="Binding", warning=True) for number in range(30)]
    assert given == [True] * BURST + [False] * (30 - BURST)
    assert case.count("limited") == 30 - BURST
    assert case.write("ns", 1, warning=True) == 1
    await case.written(BURST + 1)


async def test_an_object_without_a_namespace(case: Case) -> None:
    """Its Event is in the namespace default, and names no namespace for the object."""
    subject = Subject("scheduling.thalweg/v1alpha1", "FlowSchedulingPolicy", "", "batch", "uid")
    case.writer.write_about(subject, "Contradiction", "why", action="Reconciling", warning=True)
    await case.written(1)
    (event,) = case.events
    assert event["metadata"]["namespace"] == "default"
    assert event["involvedObject"] == {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowSchedulingPolicy",
        "name": "batch",
        "uid": "uid",
    }
