"""Whatever an API server or a proxy answers: no task ends, requests stay few, and the truth is found again."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any, cast

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import virtual_time
from support.fake_api import Scripted, ScriptedApi, event, thing
from support.profiles import examples
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.api.watches.reflector import Reflector
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.metrics import Metrics

from flowcore.api.nesting import without_depth

DEEP = b"[" * 50_000 + b"]" * 50_000
HTML = b"<html>maintenance</html>"


class Meta(msgspec.Struct):
    name: str


class Thing(msgspec.Struct):
    metadata: Meta
    value: int


class Mirror:
    """A sink."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.unread: set[str] = set()

    def key(self, value: Thing) -> str:
        return value.metadata.name

    def key_of(self, _namespace: str, name: str) -> str:
        return name

    def upsert(self, value: Thing) -> None:
        self.unread.discard(value.metadata.name)
        self.values[value.metadata.name] = value.value

    def unreadable(self, key: str) -> None:
        self.unread.add(key)

    def delete(self, key: str) -> None:
        self.values.pop(key, None)

    def keys(self) -> list[str]:
        return list(self.values)


class Reflected:
    """A reflector of a scripted API server."""

    def __init__(self, **options: Any) -> None:
        self.api, self.mirror, self.metrics = ScriptedApi(), Mirror(), Metrics()
        decode = msgspec.json.Decoder(Thing).decode
        bad_input, connection = BadInput(self.metrics), cast("Any", self.api)
        self.reflector: Reflector[Thing] = Reflector(
            "things", "/things", connection, decode, self.mirror, self.metrics, bad_input, self.api.outages, **options
        )
        self.task = asyncio.create_task(self.reflector.run())

    def check(self) -> None:
        """It lives, and was not a burden."""
        assert not self.task.done(), self.task
        assert self.api.busiest() <= 20, "two requests a second"

    async def well(self) -> None:
        """The API server is well again: the truth is found soon, and kept."""
        self.api.listing = self.api.watching = lambda _number: None
        self.api.restore()  # made up versions must not pass for true ones
        for name in list(self.api.objects):
            self.api.remove(name)
        self.api.put("late", 7)
        await asyncio.sleep(200)
        self.check()
        assert self.mirror.values == {"late": 7}
        assert not self.mirror.unread & self.mirror.values.keys()
        self.api.put("later", 8)
        await asyncio.sleep(1)
        assert self.mirror.values == {"late": 7, "later": 8}


def always(answer: Scripted) -> Callable[[int], Scripted]:
    return lambda _number: answer


def made(text: str) -> Callable[[int], Scripted]:
    """Another answer each time."""
    return lambda number: text.replace("#", str(number)).encode()


GOOD = b'{"metadata": {"resourceVersion": "1"}, "items": []}'
SICK: dict[str, tuple[Callable[[int], Scripted], Callable[[int], Scripted]]] = {
    "a watch that ends at once": (always(GOOD), always(b"")),
    "a watch that is a page of a proxy": (always(GOOD), always(HTML)),
    "a watch that expires after each list": (always(GOOD), always(event("ERROR", {"code": 410}))),
    "a watch that is refused as expired": (always(GOOD), always(Refused(410, "gone"))),
    "a watch that brings one event and ends": (
        always(GOOD),
        lambda number: event("ADDED", thing("a", number, number)),
    ),
    "a watch that brings a bookmark and ends": (always(GOOD), lambda number: event("BOOKMARK", thing("", 0, number))),
    "a watch that brings half an event": (always(GOOD), always(b'{"type": "ADDED", "obj')),
    "a watch of empty lines": (always(GOOD), always(b"\n\n\n")),
    "a watch that is refused": (always(GOOD), always(Refused(403, "no"))),
    "a watch that is lost": (always(GOOD), always(ConnectionLost("reset"))),
    "a watch whose errors have made up codes": (
        always(GOOD),
        lambda number: event("ERROR", {"code": number * 10**9}),
    ),
    "a watch whose errors are not errors": (always(GOOD), always(event("ERROR", None))),
    "nested too deeply": (always(DEEP), always(DEEP)),
    "events nested too deeply": (always(GOOD), always(b'{"type": "ADDED", "object": ' + DEEP + b"}\n")),
    "pages of a proxy": (always(HTML), always(HTML)),
    "no items": (always(b'{"metadata": {"resourceVersion": "1"}}'), always(b"")),
    "null items": (always(b'{"metadata": {"resourceVersion": "1"}, "items": null}'), always(b"")),
    "no version": (always(b'{"metadata": {}, "items": []}'), always(b"")),
    "nothing": (always(b""), always(b"")),
    "no UTF-8": (always(b'{"metadata": {"resourceVersion": "\xff"}, "items": []}'), always(b"\xff\n")),
    "objects with empty names": (
        always(b'{"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": ""}, "value": 1}]}'),
        always(b""),
    ),
    "nameless objects": (always(b'{"metadata": {"resourceVersion": "1"}, "items": [{}]}'), always(b"")),
    "the same page for ever": (
        always(b'{"metadata": {"resourceVersion": "1", "continue": "x"}, "items": [{"metadata": {"name": "a"}}]}'),
        always(b""),
    ),
    "empty pages for ever": (made('{"metadata": {"resourceVersion": "1", "continue": "#"}, "items": []}'), always(b"")),
    "small pages for ever": (
        made('{"metadata": {"resourceVersion": "1", "continue": "#"}, "items": [{"metadata": {"name": "n#"}}]}'),
        always(b""),
    ),
    "lists that are lost": (always(ConnectionLost("refused")), always(b"")),
    "lists that are refused": (always(Refused(500, "no")), always(b"")),
    "lists that are expired": (always(Refused(410, "no")), always(b"")),
}


@pytest.mark.parametrize("name", SICK)
def test_no_answer_costs_more_than_two_requests_a_second(name: str) -> None:
    """For five minutes the same answer, from the start; then the server is well."""

    async def main() -> None:
        reflected = Reflected()
        reflected.api.listing, reflected.api.watching = SICK[name]
        await asyncio.sleep(300)
        reflected.check()
        await reflected.well()

    virtual_time.run(main())


@pytest.mark.parametrize("watch", [always(Refused(404, "no")), always(b"")])
def test_versions_that_are_not_served_cost_no_more(watch: Callable[[int], Scripted]) -> None:
    """Three versions of a kind, of which the lists say 404, sometimes."""

    async def main() -> None:
        reflected = Reflected(may_be_absent=True, older=["/a", "/b"])
        reflected.api.listing = lambda number: Refused(404, "no") if number % 3 else None
        reflected.api.watching = watch
        await asyncio.sleep(600)
        reflected.check()
        await reflected.well()

    virtual_time.run(main())


def test_a_healthy_watch_that_ends_is_begun_again_at_once() -> None:
    """The server ended it after a while, or it brought something."""

    async def main() -> None:
        reflected = Reflected()
        reflected.api.watching = always(b"")
        reflected.api.seconds = 300.0
        await asyncio.sleep(3001)
        asked = reflected.api.asked
        assert len(asked) == 12  # a list and eleven watches
        assert all(abs(later - earlier - 300) < 0.01 for earlier, later in pairwise(asked[1:]))

    virtual_time.run(main())


def test_a_silent_watch_is_begun_again_and_shows_that_the_server_lives() -> None:
    """Where nothing of a kind ever changes the API server sends no bookmarks; the kind does not count as stale."""

    async def main() -> None:
        reflected = Reflected()
        assert reflected.reflector.age() == float("inf")
        for _ in range(600):
            await asyncio.sleep(1)
            assert reflected.reflector.age() < 80
        assert 5 <= len(reflected.api.asked) <= 10

    virtual_time.run(main())


@pytest.mark.parametrize("watch", [always(b""), always(HTML), always(ConnectionLost("reset"))])
def test_a_watch_that_ends_at_once_shows_nothing(watch: Callable[[int], Scripted]) -> None:
    """A proxy that accepts watches and does not carry them leaves the snapshot stale, and that is seen."""

    async def main() -> None:
        reflected = Reflected()
        reflected.api.watching = watch
        reflected.api.listing = lambda number: None if number == 1 else ConnectionLost("reset")
        await asyncio.sleep(300)
        assert reflected.reflector.age() > 290
        await reflected.well()
        assert reflected.reflector.age() < 80

    virtual_time.run(main())


@pytest.mark.parametrize("watch", [always(b""), always(event("ERROR", {"code": 410})), always(HTML)])
def test_failures_in_a_row_are_waited_out_longer_and_longer(watch: Callable[[int], Scripted]) -> None:
    """A watch that ends at once, and lists whose watches do not work: a handful of requests a minute in the end."""

    async def main() -> None:
        reflected = Reflected()
        reflected.api.watching = watch
        await asyncio.sleep(60)
        before = len(reflected.api.asked)
        await asyncio.sleep(60)
        assert len(reflected.api.asked) - before <= 25

    virtual_time.run(main())


@pytest.mark.parametrize("status", [401, 403])
def test_the_first_refusals_of_a_new_server_are_not_waited_out_long(
    status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was away for minutes and refuses everybody until it has read the roles: then its news is seen within 2 s."""

    async def main() -> None:
        reflected = Reflected()
        await asyncio.sleep(10)
        reflected.api.watching = always(ConnectionLost("refused"))
        await asyncio.sleep(600)  # the watch that is open ends for its silence
        reflected.api.watching = always(Refused(status, "no", starting=True))
        await asyncio.sleep(15)
        reflected.api.watching = lambda _number: None
        reflected.api.put("late", 7)
        await asyncio.sleep(2)
        assert reflected.mirror.values == {"late": 7}
        reflected.check()

    virtual_time.run(main())
    said = capsys.readouterr()
    assert "failing" not in said.out + said.err


def test_versions_may_go_back() -> None:
    """The data of the API server was restored from a backup: it says that our version is too large, for ever."""

    async def main() -> None:
        reflected = Reflected()
        api = reflected.api
        api.version = 10_000
        api.put("a", 1)
        await asyncio.sleep(1)
        api.objects.clear()
        api.version = 5
        api.watching = lambda _number: None if api.version > 10_000 else Refused(504, "Too large resource version")
        api.put("b", 2)
        await asyncio.sleep(400)
        assert reflected.mirror.values == {"b": 2}

    virtual_time.run(main())


def test_a_line_without_an_end_is_given_up() -> None:
    """It must not fill the memory."""

    async def main() -> None:
        reflected = Reflected()
        reflected.api.watching = always(b"x" * (2**24 + 1))
        await asyncio.sleep(60)
        await reflected.well()

    virtual_time.run(main())


def test_a_large_list_is_not_slowed_down() -> None:
    """Full pages come as fast as the server gives them."""

    async def main() -> None:
        reflected = Reflected()

        def listing(number: int) -> bytes:
            items = [thing(f"n{number}-{at}", at, 1) for at in range(500)]
            more = {} if number == 200 else {"continue": str(number)}
            return json.dumps({"metadata": {"resourceVersion": "1", **more}, "items": items}).encode()

        reflected.api.listing = listing
        await asyncio.sleep(1)
        assert reflected.reflector.synced.is_set()
        assert len(reflected.mirror.values) == 100_000

    virtual_time.run(main())


@pytest.mark.parametrize("fault", [Refused(429, "too many requests", 1.0), Refused(503, "no"), ConnectionLost("lost")])
def test_a_large_list_goes_on_where_it_was_interrupted(fault: Exception) -> None:
    """A server that is too busy for every tenth request is not asked for all the other pages again."""

    async def main() -> None:
        reflected = Reflected()
        asked: Counter[int] = Counter()

        async def request(_method: str, _path: str, *, params: dict[str, str]) -> bytes:
            page = int(params.get("continue", 0))
            asked[page] += 1
            if asked.total() % 10 == 0:
                raise fault
            items = [thing(f"n{page}-{at}", at, 1) for at in range(500)]
            more = {} if page == 199 else {"continue": str(page + 1)}
            return json.dumps({"metadata": {"resourceVersion": "1", **more}, "items": items}).encode()

        reflected.api.request = request  # type: ignore[method-assign,assignment]
        await asyncio.sleep(120)
        assert len(reflected.mirror.values) == 100_000
        assert asked[0] == 1
        assert asked.total() < 230

    virtual_time.run(main())


def test_a_list_whose_pages_never_come_is_begun_anew() -> None:
    """It may be that only the place to go on from is at fault; and the kind is told to fail."""

    async def main() -> None:
        reflected = Reflected()
        asked: Counter[str] = Counter()

        async def request(_method: str, _path: str, *, params: dict[str, str]) -> bytes:
            asked[params.get("continue", "")] += 1
            if "continue" in params:
                raise Refused(500, "no")
            items = [thing(f"n{at}", at, 1) for at in range(500)]
            return json.dumps({"metadata": {"resourceVersion": "1", "continue": "x"}, "items": items}).encode()

        reflected.api.request = request  # type: ignore[method-assign,assignment]
        await asyncio.sleep(300)
        assert asked[""] >= 3
        assert asked.total() < 200
        assert not reflected.task.done()

    virtual_time.run(main())


def test_a_server_that_names_a_time_is_not_asked_before() -> None:
    """Retry-After of a list."""

    async def main() -> None:
        reflected = Reflected()
        reflected.api.listing = lambda _number: Refused(429, "too many requests", 20.0)
        await asyncio.sleep(100)
        assert all(later - earlier >= 20 for earlier, later in pairwise(reflected.api.asked))
        assert not reflected.task.done()

    virtual_time.run(main())


def test_an_unreadable_version_does_not_delete_the_one_before() -> None:
    """In a watch and in a list: the sink is told, and the object stays until it is known to be gone."""

    async def main() -> None:
        reflected = Reflected()
        api, mirror = reflected.api, reflected.mirror
        api.put("a", 1)
        api.put("b", 2)
        await asyncio.sleep(1)
        api.put("a", cast("int", "not a number"))
        await asyncio.sleep(1)
        assert (mirror.values, mirror.unread) == ({"a": 1, "b": 2}, {"a"})
        api.restore()
        await asyncio.sleep(10)  # listed again
        assert (mirror.values, mirror.unread) == ({"a": 1, "b": 2}, {"a"})
        count = reflected.metrics.registry.get_sample_value
        assert count("thalweg_refused_inputs_total", {"kind": "things", "field": "object"}) == 2
        api.put("a", 3)
        api.put("b", cast("int", "not a number"))
        api.remove("b")
        await asyncio.sleep(1)
        assert (mirror.values, mirror.unread - {"b"}) == ({"a": 3}, set())

    virtual_time.run(main())


def test_what_is_nested_too_deeply_is_left_out_and_the_rest_is_read() -> None:
    """One such object stops no other, and is read itself as far as anybody reads it."""

    async def main() -> None:
        reflected = Reflected()
        item = b'{"metadata": {"name": "deep", "x": ' + DEEP + b'}, "value": 1, "y": ' + DEEP + b"}"
        page = (
            b'{"metadata": {"resourceVersion": "1"}, "items": [' + item + b', {"metadata": {"name": "b"}, "value": 2}]}'
        )
        reflected.api.listing = always(page)
        await asyncio.sleep(1)
        assert reflected.mirror.values == {"deep": 1, "b": 2}

    virtual_time.run(main())


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(_json)
def test_shallow_json_is_left_alone(value: Any) -> None:
    """Byte for byte, brackets in strings included."""
    raw = json.dumps(value).encode()
    assert without_depth(raw) == raw


@given(_json, st.integers(1, 3000))
def test_deep_json_becomes_readable(value: Any, depth: int) -> None:
    """What is not deep stays."""
    inner = json.dumps(value).encode()
    raw = b'{"a": ' + inner + b', "b": ' + b'[{"x]": ' * depth + inner + b"}]" * depth + b', "c": ' + inner + b"}"
    read = json.loads(without_depth(raw))
    assert (read["a"], read["c"]) == (value, value)


@given(st.binary(max_size=200))
@example(DEEP)
@example(b'{"a": "\xff"}')
@example(b'{"a": "\\ud800"}')
@example(b"9" * 10_000)
@example(b"1e999999")
def test_reading_has_one_error(raw: bytes) -> None:
    """Any bytes, into a shape that keeps everything and one that keeps little."""
    for reader in (JsonReader(object), JsonReader(Thing)):
        with suppress(UnreadableJson):
            reader.read(raw)


@st.composite
def _mutated(draw: st.DrawFn, good: bytes) -> bytes:
    """Bytes that were valid once."""
    match draw(st.integers(0, 6)):
        case 0:
            return good[: draw(st.integers(0, len(good)))]
        case 1:
            at = draw(st.integers(0, len(good) - 1))
            return good[:at] + bytes([draw(st.integers(0, 255))]) + good[at + 1 :]
        case 2:
            return good.replace(draw(st.sampled_from([b"[]", b"1", b'"a"', b'"metadata"', b"}"])), b"null")
        case 3:
            return good.replace(b'"1"', DEEP, 1)
        case 4:
            return good.replace(b'"a"', draw(st.sampled_from([b'"\xff"', b'"\\ud800"', b'""', b"5", b"1e400"])))
        case 5:
            return good + draw(st.binary(max_size=30))
        case _:
            return draw(st.binary(max_size=60))


_LIST = json.dumps({"metadata": {"resourceVersion": "1"}, "items": [thing("a", 1, 1), thing("b", 2, 1)]}).encode()
_LINES = event("ADDED", thing("a", 1, 2)) + event("BOOKMARK", thing("", 0, 3)) + event("DELETED", thing("a", 1, 4))
_errors = st.sampled_from(
    [None, ConnectionLost("reset"), *(Refused(status, "no") for status in (400, 403, 404, 410, 429, 500, 504))]
)


@settings(deadline=None, max_examples=examples(150))
@given(
    lists=st.lists(_errors | _mutated(_LIST), min_size=1, max_size=5),
    watches=st.lists(_errors | _mutated(_LINES), min_size=1, max_size=5),
    may_be_absent=st.booleans(),
    seconds=st.sampled_from([0.0, 0.3, 2.0]),
)
def test_any_bytes_are_survived_and_the_truth_is_found_again(
    lists: list[Scripted], watches: list[Scripted], *, may_be_absent: bool, seconds: float
) -> None:
    """Lists and watches of arbitrary answers in turn; then the server is well."""

    async def main() -> None:
        reflected = Reflected(may_be_absent=may_be_absent, older=["/older"] if may_be_absent else [])
        api = reflected.api
        api.put("a", 1)
        api.listing = lambda number: lists[number % len(lists)]
        api.watching = lambda number: watches[number % len(watches)]
        api.seconds = seconds
        await asyncio.sleep(120)
        reflected.check()
        await reflected.well()

    virtual_time.run(main())
