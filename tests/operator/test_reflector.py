"""The reflector keeps its sink equal to the server through everything that can go wrong with a watch."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from support.fake_api import WatchServer, connected, listening, refusal, serving
from support.operator import until
from support.tcp_proxy import proxying
from thalweg_operator import yielding
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.watches.reflector import Reflector
from thalweg_operator.metrics import Metrics


class Meta(msgspec.Struct):
    name: str


class Thing(msgspec.Struct):
    metadata: Meta
    value: int


class Mirror:
    """A sink that remembers what was done to it."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.done: list[str] = []

    def key(self, value: Thing) -> str:
        return value.metadata.name

    def upsert(self, value: Thing) -> None:
        self.values[value.metadata.name] = value.value
        self.done.append(f"{value.metadata.name}={value.value}")

    def delete(self, key: str) -> None:
        self.values.pop(key, None)
        self.done.append(f"-{key}")

    def keys(self) -> list[str]:
        return list(self.values)

    def key_of(self, _namespace: str, name: str) -> str:
        return name

    def unreadable(self, key: str) -> None:
        self.done.append(f"?{key}")


def reflector_of(
    connection: ApiClient, mirror: Mirror, metrics: Metrics | None = None, path: str = "/things", **options: Any
) -> Reflector[Thing]:
    metrics = metrics or Metrics()
    decode = msgspec.json.Decoder(Thing).decode
    bad_input = BadInput(metrics)
    return Reflector("things", path, connection, decode, mirror, metrics, bad_input, connection.outages, **options)


class Case:
    def __init__(self, server: WatchServer, mirror: Mirror, reflector: Reflector[Thing], metrics: Metrics) -> None:
        self.server, self.mirror, self.reflector, self.metrics = server, mirror, reflector, metrics

    async def equal(self) -> None:
        """Waits until the mirror shows what the server has."""

        def same() -> bool:
            return self.mirror.values == {
                name: each["value"] for name, each in self.server.objects.items() if isinstance(each["value"], int)
            }

        await until(same, 15, lambda: f"{self.mirror.values} to become {self.server.objects}")

    def count(self, name: str) -> float:
        return self.metrics.registry.get_sample_value(name, {"kind": "things"}) or 0.0


@asynccontextmanager
async def reflecting(folder: Path, **objects: Any) -> AsyncIterator[Case]:
    server, mirror, metrics = WatchServer(), Mirror(), Metrics()
    for name, value in objects.items():
        server.objects[name] = server.thing(name, value)
    async with serving(server.app, folder) as connection:
        reflector = reflector_of(connection, mirror, metrics)
        task = asyncio.create_task(reflector.run())
        try:
            await asyncio.wait_for(reflector.synced.wait(), 10)
            await asyncio.wait_for(server.watched(), 10)
            yield Case(server, mirror, reflector, metrics)
            assert not task.done(), task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_list_then_watch(tmp_path: Path) -> None:
    """What was there, what comes, changes and goes arrives in order; the watch goes on from the list's version."""
    async with reflecting(tmp_path, a=1, b=2) as case:
        assert case.mirror.values == {"a": 1, "b": 2}
        case.server.put("c", 3)
        case.server.put("a", 4)
        case.server.remove("b")
        await case.equal()
        assert case.mirror.done[2:] == ["c=3", "a=4", "-b"]
        (watch,) = case.server.watches
        assert (watch["resourceVersion"], watch["allowWatchBookmarks"]) == ("10", "true")
        assert int(watch["timeoutSeconds"]) > 0


async def test_lists_come_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pages are taken, and only then is the reflector in sync."""
    monkeypatch.setattr("thalweg_operator.api.watches.pages._PAGE", 3)
    async with reflecting(tmp_path, **{f"n{number}": number for number in range(8)}) as case:
        assert len(case.mirror.values) == 8
        assert [each.get("continue") for each in case.server.lists] == [None, "3", "6"]


async def test_an_expired_page_begins_the_list_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A 410 on a later page is no reason to take half a list for the whole."""
    monkeypatch.setattr("thalweg_operator.api.watches.pages._PAGE", 2)
    server, broken = WatchServer(), []

    def expire(start: int) -> None:
        if start == 2 and not broken:
            broken.append(start)
            raise web.HTTPGone

    server.before_page = expire
    mirror = Mirror()
    for number in range(5):
        server.objects[f"n{number}"] = server.thing(f"n{number}", number)
    async with serving(server.app, tmp_path) as connection:
        reflector = reflector_of(connection, mirror)
        task = asyncio.create_task(reflector.run())
        await asyncio.wait_for(reflector.synced.wait(), 10)
        task.cancel()
    assert broken
    assert len(mirror.values) == 5


async def test_an_expired_watch_relists_and_notices_deletions(tmp_path: Path) -> None:
    """An ERROR event 410: what vanished while nobody watched is deleted, what came is there."""
    async with reflecting(tmp_path, kept=1, vanished=2) as case:
        case.server.objects.pop("vanished")
        case.server.version += 100
        case.server.objects["new"] = case.server.thing("new", 3)
        case.server.expire_history()
        await case.server.close_watches()
        await case.equal()
        assert "-vanished" in case.mirror.done
        assert len(case.server.lists) == 2
        assert case.count("thalweg_relists_total") == 1
        case.server.put("later", 4)
        await case.equal()


async def test_a_410_to_the_watch_itself_relists(tmp_path: Path) -> None:
    """As an HTTP status it means the same as an event."""
    async with reflecting(tmp_path, vanished=1) as case:
        case.server.watch_faults = [refusal(410, "too old resource version")]
        case.server.objects.pop("vanished")
        await case.server.close_watches()
        await case.equal()
        assert case.count("thalweg_relists_total") == 1


async def test_a_relist_that_fails_is_tried_again(tmp_path: Path) -> None:
    """Nothing is deleted because a list failed."""
    async with reflecting(tmp_path, a=1, b=2) as case:
        case.server.list_faults = [refusal(500, "etcd is away"), refusal(429, "later"), web.Response(body=b"{half")]
        case.server.objects.pop("b")
        case.server.expire_history()
        case.server.version += 1
        case.server._oldest = case.server.version
        await case.server.close_watches()
        await case.equal()
        assert case.mirror.done == ["a=1", "b=2", "a=1", "-b"]


async def test_a_connection_dropped_in_the_middle_of_a_line(tmp_path: Path) -> None:
    """Half an event is no event: it comes again with the next watch, and nothing is listed anew."""
    async with reflecting(tmp_path, a=1) as case:
        case.server.put("b", 2)
        await case.equal()
        case.server.version += 1
        event = json.dumps({"type": "MODIFIED", "object": case.server.thing("b", 77)}).encode()
        await case.server.close_watches(event[:-20])
        case.server.put("c", 3)
        await case.equal()
        assert case.mirror.values == {"a": 1, "b": 2, "c": 3}
        assert len(case.server.lists) == 1
        assert case.server.watches[-1]["resourceVersion"] == "11"


async def test_events_cut_into_pieces(tmp_path: Path) -> None:
    """Lines arrive whole however the bytes come."""
    async with reflecting(tmp_path) as case:
        event = json.dumps({"type": "ADDED", "object": case.server.thing("a", 1)}).encode() + b"\n"
        case.server.objects["a"] = case.server.thing("a", 1)
        for at in range(0, len(event), 7):
            case.server.raw(event[at : at + 7])
            await asyncio.sleep(0.001)
        await case.equal()


async def test_a_garbage_object_is_skipped_and_counted(tmp_path: Path) -> None:
    """An object of the wrong shape stops no other, in a list or in a watch."""
    async with reflecting(tmp_path, good=1, bad="not a number") as case:
        case.server.put("bad", ["still", "not"])
        case.server.put("good", 2)
        await case.equal()
        assert case.mirror.values == {"good": 2}
        assert case.count("thalweg_unreadable_objects_total") == 2


@pytest.mark.parametrize(
    "line",
    [
        b"this is not JSON\n",
        b'{"type": "ADDED"}\n',
        b'{"type": "ADDED", "object": 5}\n',
        b'{"type": "ADDED", "object": {"metadata": {}}}\n',
        b"\xff\xfe\n",
        b'["type"]\n',
    ],
)
async def test_a_garbage_line_does_not_end_the_reflector(tmp_path: Path, line: bytes) -> None:
    """What cannot be an event at all is survived: whatever it stood for is found out by a list."""
    async with reflecting(tmp_path, a=1) as case:
        case.server.objects.pop("a")  # the event that got garbled
        case.server.version += 1
        case.server.raw(line)
        case.server.put("b", 2)
        await case.equal()
        case.server.put("c", 3)
        await case.equal()


async def test_a_garbage_list_is_asked_for_again(tmp_path: Path) -> None:
    """The first list is no list: the reflector is in sync only after a real one."""
    server, mirror = WatchServer(), Mirror()
    server.list_faults = [web.Response(body=b"<html>a proxy's page</html>"), web.json_response({"items": [1]})]
    server.objects["a"] = server.thing("a", 1)
    async with serving(server.app, tmp_path) as connection:
        reflector = reflector_of(connection, mirror)
        task = asyncio.create_task(reflector.run())
        await asyncio.wait_for(reflector.synced.wait(), 10)
        task.cancel()
    assert mirror.values == {"a": 1}


async def test_bookmarks_move_the_version_on(tmp_path: Path) -> None:
    """After a dropped connection the watch goes on from the bookmark, not from the last event."""
    async with reflecting(tmp_path, a=1) as case:
        case.server.put("a", 2)
        case.server.bookmark()
        await case.equal()
        await until(lambda: case.count("thalweg_watch_events_total") == 2, 10, lambda: "the bookmark to arrive")
        await case.server.close_watches()
        await asyncio.wait_for(case.server.watched(2), 10)
        assert case.server.watches[-1]["resourceVersion"] == str(case.server.version) == "16"
        assert case.mirror.done == ["a=1", "a=2"]


async def test_an_error_in_mid_watch_goes_on_from_where_it_was(tmp_path: Path) -> None:
    """Events that were applied are not played again: an old state in between would count room twice or not at all."""
    async with reflecting(tmp_path, a=1) as case:
        case.server.put("a", 2)
        case.server.put("a", 3)
        await case.equal()
        case.server.send_event("ERROR", {"kind": "Status", "code": 500, "message": "etcd hiccup"})
        await asyncio.wait_for(case.server.watched(2), 10)
        case.server.put("a", 4)
        await case.equal()
        assert case.mirror.done == ["a=1", "a=2", "a=3", "a=4"]
        assert case.server.watches[-1]["resourceVersion"] == "12"


async def test_refusals_are_waited_out(tmp_path: Path) -> None:
    """Forbidden or overloaded for a while, it goes on when it may, without a new list."""
    async with reflecting(tmp_path, a=1) as case:
        case.server.watch_faults = [
            refusal(403, "not yet"),
            refusal(429, "too many"),
            refusal(504, "too large version"),
        ]
        await case.server.close_watches()
        case.server.put("b", 2)
        await case.equal()
        assert len(case.server.lists) == 1


async def test_a_kind_that_the_cluster_does_not_serve_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In sync all the same, and asked for again: it may come, and go, with another version of the cluster."""
    monkeypatch.setattr("thalweg_operator.api.watches.reflector._ABSENT", 0.02)
    server, mirror, metrics = WatchServer(), Mirror(), Metrics()
    server.list_faults = [web.Response(status=404, text="404 page not found")]
    async with serving(server.app, tmp_path) as connection:
        reflector = reflector_of(connection, mirror, metrics, may_be_absent=True)
        task = asyncio.create_task(reflector.run())
        await asyncio.wait_for(reflector.synced.wait(), 10)
        case = Case(server, mirror, reflector, metrics)
        await server.watched()
        server.put("a", 1)
        await case.equal()
        assert case.count("thalweg_relists_total") == 0
        gone = [web.Response(status=404) for _ in range(2)]
        server.watch_faults, server.list_faults = gone[:1], gone[1:]
        lists = len(server.lists)
        await server.close_watches()
        await until(lambda: "-a" in mirror.done, 10, lambda: f"a to go; {mirror.done}")
        await until(lambda: len(server.lists) > lists, 10, lambda: "another list")
        await case.equal()
        task.cancel()


async def test_the_version_that_is_served_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest of them; when the cluster begins to serve another one in its place, that one, and nothing is lost."""
    monkeypatch.setattr("thalweg_operator.api.watches.reflector._ABSENT", 0.02)
    server, mirror, metrics, newer = WatchServer(), Mirror(), Metrics(), asyncio.Event()

    @web.middleware
    async def versions(request: web.Request, handler: Any) -> web.StreamResponse:
        if (request.path == "/v2/things") != newer.is_set():
            return web.Response(status=404, text="404 page not found")
        found: web.StreamResponse = await handler(request)
        return found

    server.app.middlewares.append(versions)
    server.app.router.add_get("/v2/things", server._serve)
    async with serving(server.app, tmp_path) as connection:
        reflector = reflector_of(
            connection, mirror, metrics, "/v2/things", may_be_absent=True, older=["/v3/no", "/things"]
        )
        task = asyncio.create_task(reflector.run())
        await asyncio.wait_for(reflector.synced.wait(), 10)
        case = Case(server, mirror, reflector, metrics)
        await server.watched()
        server.put("a", 1)
        await case.equal()
        newer.set()
        await server.close_watches()
        await server.watched(2)
        server.put("b", 2)
        await case.equal()
        assert mirror.done.count("-a") == 0
        task.cancel()


async def test_a_kind_that_is_not_there_when_it_must_be(tmp_path: Path) -> None:
    """A 404 for nodes or pods is a failure like any other: nobody takes it for an empty cluster."""
    async with reflecting(tmp_path, a=1) as case:
        case.server.list_faults = [web.Response(status=404), refusal(403, "not yours")]
        case.server.expire_history()
        case.server.version += 1
        case.server._oldest = case.server.version
        await case.server.close_watches()
        await until(lambda: len(case.mirror.done) == 2, 10, lambda: f"a second list to be read; {case.server.lists}")
        assert len(case.server.lists) == 4
        assert case.mirror.done == ["a=1", "a=1"]


async def test_what_may_not_be_read_is_an_error_with_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is never taken for a kind that the cluster does not have."""
    server = WatchServer()
    server.list_faults = [refusal(403, "things is forbidden")]
    async with serving(server.app, tmp_path) as connection:
        reflector = reflector_of(connection, Mirror(), may_be_absent=True)
        task = asyncio.create_task(reflector.run())
        await until(lambda: server.lists, 10, lambda: "a list")
        assert not reflector.synced.is_set()
        await asyncio.wait_for(reflector.synced.wait(), 10)
        task.cancel()
    said = capsys.readouterr()
    (line,) = [line for line in (said.out + said.err).splitlines() if "failing" in line]
    assert "error" in line
    assert "things" in line


async def test_an_overload_is_no_answer(tmp_path: Path) -> None:
    """The operator leads once each kind was listed or refused: it must not lead without what it may read."""
    server = WatchServer()
    server.list_faults = [refusal(429, "too many"), refusal(503, "no leader")]
    async with serving(server.app, tmp_path) as connection:
        reflector = reflector_of(connection, Mirror())
        task = asyncio.create_task(reflector.run())
        await asyncio.wait_for(reflector.answered.wait(), 10)
        assert reflector.synced.is_set()
        task.cancel()


async def test_an_api_that_goes_on_failing_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the operator would never lead while one kind fails."""
    monkeypatch.setattr("thalweg_operator.api.watches.reflector._BACKOFF", Backoff(first=0.01, longest=0.01))
    monkeypatch.setattr("thalweg_operator.api.watches.reflector._PER_SECOND", 1000.0)
    server = WatchServer()
    server.list_faults = [refusal(500, "broken") for _ in range(100)]
    async with serving(server.app, tmp_path) as connection:
        reflector = reflector_of(connection, Mirror())
        task = asyncio.create_task(reflector.run())
        await asyncio.wait_for(reflector.answered.wait(), 30)
        assert not reflector.synced.is_set()
        task.cancel()


async def test_a_watch_that_ends_by_itself_is_begun_again(tmp_path: Path) -> None:
    """The server ends watches after a while; that is no failure, and nothing is missed."""
    async with reflecting(tmp_path, a=1) as case:
        case.server.watch_faults = [web.Response(body=b"") for _ in range(3)]
        await case.server.close_watches()
        case.server.put("b", 2)
        await case.equal()
        assert len(case.server.lists) == 1


async def test_a_half_open_connection_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy stops forwarding and closes nothing: the watch is begun again from where it was, on a new connection."""
    monkeypatch.setattr("thalweg_operator.api.watches.reflector._SILENCE", 0.5)
    server, mirror = WatchServer(), Mirror()
    async with (
        listening(server.app) as port,
        proxying(port) as (proxy, outside),
        connected(outside, tmp_path) as connection,
    ):
        reflector = reflector_of(connection, mirror)
        task = asyncio.create_task(reflector.run())
        await asyncio.wait_for(server.watched(), 10)
        proxy.freeze()
        before = proxy.connections
        server.put("a", 1)
        await until(lambda: mirror.values == {"a": 1}, 10, lambda: "the event that nobody forwarded")
        assert proxy.connections > before
        assert len(server.lists) == 1
        task.cancel()


async def test_listed_again_on_demand(tmp_path: Path) -> None:
    """The list begins after it was demanded, and the watch goes on after it."""
    async with reflecting(tmp_path, a=1) as case:
        demanded = asyncio.get_running_loop().time()
        assert case.reflector.listed_at < demanded
        case.server.objects["b"] = case.server.thing("b", 2)  # the watch has not shown it
        case.reflector.relist()
        await until(lambda: case.reflector.listed_at >= demanded, 10, lambda: "another list")
        await case.equal()
        await case.server.watched(2)
        case.server.put("c", 3)
        await case.equal()
        assert case.reflector.version == case.server.version
        assert case.count("thalweg_relists_total") == 1


async def test_dear_events_leave_others_their_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each event costs more than a burst may, another task has a turn after each: in a list and in a watch."""
    spent, seen = 0.0, list[int]()
    monkeypatch.setattr(yielding, "perf_counter", lambda: spent)
    upsert = Mirror.upsert

    def dear(mirror: Mirror, value: Thing) -> None:
        nonlocal spent
        spent += 2 * yielding.BURST_SECONDS
        upsert(mirror, value)

    monkeypatch.setattr(Mirror, "upsert", dear)

    async def note() -> None:
        while True:
            seen.append(round(spent / yielding.BURST_SECONDS / 2))
            await asyncio.sleep(0)

    noting = asyncio.create_task(note())
    async with reflecting(tmp_path, **{f"t{at}": at for at in range(50)}) as case:
        for at in range(50):
            case.server.put(f"t{at}", -at)
        await case.equal()
    noting.cancel()
    assert seen[-1] == 100
    assert max(after - before for before, after in pairwise(seen)) == 1
