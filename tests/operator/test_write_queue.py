"""A namespace whose requests fail or hang for ever does not slow down the writes of another, whatever the write.

The server is a real one, behind HTTP, and so is each of the parts that write.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support import virtual_time
from support.fake_api import answering, refusal, serving
from support.fake_cluster.driven_ledger import DrivenLedger
from support.operator import until
from support.recording_shell import RecordingShell
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.writes.events import EventWriter
from thalweg_operator.api.writes.fair_queue import slots_for
from thalweg_operator.api.writes.write_queue import Finished, Outcome, Retry, WriteQueue
from thalweg_operator.delivery.binder import Binder
from thalweg_operator.delivery.conditions import ConditionWriter
from thalweg_operator.delivery.evictor import Evictor
from thalweg_operator.delivery.nominator import Nominator
from thalweg_operator.errors import Refused
from thalweg_operator.metrics import Metrics
from thalweg_operator.planning.reports.progress import ProgressLog
from thalweg_operator.reservations.effects import Bind, Departure, Evict, Nominate, OpenGate, WriteCondition

from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass

GOOD = 50
#: More than there are slots for any kind of write.
BAD = 100


class Server:
    """Writes to pods of the namespace ``good`` are carried out; those of ``bad`` meet their fate."""

    def __init__(self, fate: str) -> None:
        self.fate = fate
        self.posts: Counter[str] = Counter()
        self.done: set[str] = set()
        self._end = asyncio.Event()
        self.app = web.Application()
        self.app.router.add_route("*", "/api/v1/namespaces/{namespace}/{tail:.*}", self._answer)
        self.app.on_shutdown.append(self._stop)

    async def _stop(self, _app: web.Application) -> None:
        self._end.set()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        namespace = request.match_info["namespace"]
        self.posts[namespace] += 1
        if namespace == "good":
            body = await request.json()
            self.done.add(body.get("involvedObject", {}).get("name") or request.match_info["tail"])
            return web.json_response({"metadata": {}, "spec": {}}, status=201)
        if self.fate == "hang":
            await self._end.wait()
        return refusal(500, "failed calling webhook: connection refused")


def crowd(namespace: str, count: int, **fields: Any) -> list[Pod]:
    return [Pod(namespace, f"p{number}", f"{namespace}{number}", PodClass(), **fields) for number in range(count)]


class Writers:
    """All parts that write."""

    def __init__(self, connection: ApiClient) -> None:
        self.state, self.metrics = DrivenLedger(time.monotonic), Metrics()
        self.state.upsert_node(Node("n", allocatable=(("pods", 1000),)))
        self.events = EventWriter(connection, self.metrics)
        shell = self.state.shell
        wanted: Any = RecordingShell()
        self.binder = Binder(connection, shell, self.metrics, self.events, ProgressLog(), 32)
        self.nominator = Nominator(connection, wanted, self.metrics, 16)
        self.evictor = Evictor(connection, wanted, self.metrics, self.events)
        self.waiting = ConditionWriter(connection, shell, self.metrics, self.events, 1000.0)

    def bind(self, pod: Pod) -> None:
        self.state.upsert_pod(pod)
        assert self.state.reserve(pod, "n")
        self.binder.put(Bind(pod, "n", self.state.generation))

    def nominate(self, pod: Pod) -> None:
        self.nominator.put(Nominate(pod, "n", 1, 1))

    def open(self, pod: Pod) -> None:
        self.nominator.put(OpenGate(pod, 0))

    def evict(self, pod: Pod) -> None:
        self.evictor.put(Evict(pod, "Its gang is there in part.", Departure.PARTIAL_GANG))

    def tell(self, pod: Pod) -> None:
        self.state.upsert_pod(pod)
        self.waiting.put(WriteCondition(pod, "no room", "Unschedulable"))

    def warn(self, pod: Pod) -> None:
        self.events.write(pod, "FailedScheduling", "no room", action="Scheduling", warning=True)

    def report(self, pod: Pod) -> None:
        self.events.write(pod, "Scheduled", "assigned", action="Binding")


@asynccontextmanager
async def writing(folder: Path, fate: str) -> AsyncIterator[tuple[Server, Writers]]:
    server = Server(fate)
    async with serving(server.app, folder, connections=100) as connection:
        writers = Writers(connection)
        parts = (writers.binder, writers.nominator, writers.evictor, writers.waiting, writers.events)
        tasks = [asyncio.create_task(part.run()) for part in parts]
        try:
            yield server, writers
            assert not any(task.done() for task in tasks), tasks
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("fate", ["fail", "hang"])
@pytest.mark.parametrize("kind", ["bind", "nominate", "open", "evict", "tell", "warn", "report"])
async def test_others_are_written_at_once(tmp_path: Path, kind: str, fate: str) -> None:
    """A namespace of which each request fails, or is never answered, has items for all slots and gets few of them."""
    async with writing(tmp_path, fate) as (server, writers):
        write: Callable[[Pod], None] = getattr(writers, kind)
        for pod in crowd("bad", BAD, scheduler_name="thalweg"):
            write(pod)
        await until(lambda: server.posts["bad"], 10, lambda: "the first bad request")
        for pod in crowd("good", GOOD, scheduler_name="thalweg"):
            write(pod)
        # A request that hangs has not even timed out by then.
        await until(lambda: len(server.done) >= GOOD, 20, lambda: f"{GOOD} writes; there are {len(server.done)}")


@pytest.mark.parametrize("namespaces", [10, 50, 100])
def test_many_namespaces_that_hang(namespaces: int) -> None:
    """More than there are slots hold all of them for as long as one request hangs; then the others are written."""

    async def main() -> None:
        loop, hangs, done = asyncio.get_running_loop(), 15.0, 0
        begun = loop.time()

        async def attempt(namespace: str, _tries: int) -> Outcome:
            nonlocal done
            if namespace != "good":
                await asyncio.sleep(hangs)
                return Retry("lost")
            done += 1
            return Finished.ANSWERED

        queue = WriteQueue("bindings", 32, attempt, Metrics(), Backoff(0.1, 5.0))
        sending = asyncio.create_task(queue.run())
        for number in range(namespaces * 100):
            queue.put(f"bad{number % namespaces}", f"bad{number % namespaces}")
        await asyncio.sleep(1)
        for _ in range(1000):
            queue.put("good", "good")
        while done < 1000:  # noqa: ASYNC110 - the clock jumps
            await asyncio.sleep(1)
        # No namespace of them held a slot twice meanwhile.
        assert loop.time() - begun <= hangs * (2 + namespaces / slots_for(32))
        sending.cancel()

    virtual_time.run(main())


async def test_a_namespace_that_fails_is_asked_rarely(tmp_path: Path) -> None:
    """Hundreds of bindings to it cost a handful of requests, and all are made once it works again."""
    async with writing(tmp_path, "fail") as (server, writers):
        for pod in crowd("bad", 300, scheduler_name="thalweg"):
            writers.bind(pod)
        await until(lambda: server.posts["bad"] >= 32, 10, lambda: "the first requests")
        for pod in crowd("good", GOOD, scheduler_name="thalweg"):
            writers.bind(pod)
        await until(lambda: sum(each.endswith("/binding") for each in server.done) == GOOD, 10, lambda: "the good ones")
        # The first ones went at once; since then there was one request at a time.
        assert server.posts["bad"] < 32 + 10
        value = writers.metrics.registry.get_sample_value
        assert value("thalweg_write_retries_total", {"queue": "bindings", "cause": "error"}) >= 32
        assert value("thalweg_queued_writes", {"queue": "bindings", "state": "due"}) > 200
        assert len(writers.state.reservations) == 300 + GOOD


@contextmanager
def wall_clock_jumps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each time that the wall clock is read it is an hour earlier or later than before."""
    now, hours = 1.8e9, [0]

    def jump() -> float:
        hours[0] += 1
        return now + (3600.0 if hours[0] % 2 else -3600.0)

    with monkeypatch.context() as patch:
        patch.setattr("time.time", jump)
        yield


async def attempts(scripts: dict[str, list[Outcome]], concurrency: int = 4) -> list[str]:
    """The order of tries of items that end as their scripts say."""
    tried: list[str] = []

    async def attempt(item: str, tries: int) -> Outcome:
        assert tried.count(item) == tries
        tried.append(item)
        return scripts[item].pop(0)

    made = WriteQueue("test", concurrency, attempt, Metrics(), Backoff(0.001, 0.01))
    task = asyncio.create_task(made.run())
    for item in scripts:
        made.put(item, item[0])
    try:
        async with asyncio.timeout(10):
            await made.drain()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert len(made) == 0
    return tried


async def test_the_wall_clock_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be tried again is, soon, while the wall clock jumps by hours."""
    with wall_clock_jumps(monkeypatch):
        assert await attempts({"a": [Retry("lost"), Retry("error"), Finished.ANSWERED]}) == ["a"] * 3


async def test_items_go_in_their_order() -> None:
    """Those of one namespace, tried for the first time; one that is tried again holds up none."""
    order = await attempts(
        {"a1": [Retry("lost"), Finished.ANSWERED], "a2": [Finished.UNSENT], "a3": [Finished.ANSWERED]}, concurrency=1
    )
    assert order == ["a1", "a2", "a3", "a1"]


async def test_an_attempt_that_raises_is_the_last_one() -> None:
    """And the worker goes on: there is only one."""
    order: list[str] = []

    async def attempt(item: str, _tries: int) -> Outcome:
        order.append(item)
        if item == "bad":
            raise ValueError(item)
        return Finished.ANSWERED

    made = WriteQueue("test", 1, attempt, Metrics(), Backoff(0.001, 0.01))
    task = asyncio.create_task(made.run())
    for item in ("bad", "good"):
        made.put(item, "ns")
    async with asyncio.timeout(10):
        await made.drain()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert order == ["bad", "good"]


async def test_drain_may_leave_what_rests() -> None:
    """What waits for its next try is waited for only where that is asked for."""
    release = asyncio.Event()

    async def attempt(item: str, _tries: int) -> Outcome:
        if item == "later" and not release.is_set():
            return Retry("busy", 0.2, counts_as_failure=False)
        return Finished.ANSWERED

    made = WriteQueue("test", 2, attempt, Metrics(), Backoff(0.001, 0.01))
    task = asyncio.create_task(made.run())
    made.put("later", "a")
    made.put("now", "a")
    async with asyncio.timeout(10):
        await made.drain(resting=False)
        assert len(made) == 1
        release.set()
        await made.drain()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("86400", 30.0),
        ("inf", 30.0),
        ("1e400", 30.0),
        ("-inf", 0.0),
        ("-3", 0.0),
        ("nan", 0.0),
        ("", 0.0),
        ("9" * 5000, 30.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 0.0),
    ],
)
async def test_retry_after(tmp_path: Path, header: str, seconds: float) -> None:
    """Whatever a proxy writes there: a number of seconds, at most thirty."""
    app = web.Application()
    app.router.add_get("/", answering(429, "slow down", Retry_After=header))
    async with serving(app, tmp_path) as connection:
        with pytest.raises(Refused) as refused:
            await connection.request("GET", "/")
    assert refused.value.retry_after == seconds
