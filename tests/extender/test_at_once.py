"""Questions of filter as Go's client asks them: answered without aiohttp where they wait for nothing, else with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.extender import UNPACED_LIMITS, StubPlanView, filter_request, pod, preempt_request, served
from support.profiles import examples
from thalweg_extender import ExtenderLimits
from thalweg_extender.answers import FilterOutcome
from thalweg_listener.at_once import begun

from flowcore.model.advice import Advice, ExtenderPod

PASSES = Advice(managed=True, node="n1", hold=True)
NAMES = ["n0", "n1", "n2"]


class CountingPlanView(StubPlanView):
    """Counts which way questions are asked, and lets them wait."""

    def __init__(self, advice: Advice = PASSES) -> None:
        super().__init__(advice)
        self.at_once: list[bool | asyncio.Future[None]] = []
        self.asked_at_once = self.waited = 0
        self.was_asked = asyncio.Event()

    def planned_at_once(self, _extender_pod: ExtenderPod, _nodes: Sequence[str]) -> bool | asyncio.Future[None]:
        self.asked_at_once += 1
        self.was_asked.set()
        return self.at_once.pop(0) if self.at_once else True

    async def until_planned(self, _extender_pod: ExtenderPod, _nodes: Sequence[str]) -> None:
        self.waited += 1


def go_request(body: bytes, verb: str = "filter", *headers: str) -> bytes:
    """As Go's client writes it."""
    lines = [f"POST /extender/{verb} HTTP/1.1", "Host: thalweg", "User-Agent: Go-http-client/1.1"]
    lines += [f"Content-Length: {len(body)}", "Content-Type: application/json", *headers, "Accept-Encoding: gzip"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


QUESTION = go_request(filter_request(NAMES))


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def asks(self, *parts: bytes, pause: float = 0.0) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer to a request in parts."""
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()
            await asyncio.sleep(pause)
        return await self.answer()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer."""
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 20)).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:-2])}
        return int(head[0].split()[1]), headers, await self.reader.readexactly(int(headers["content-length"]))


@asynccontextmanager
async def connected(
    guide: StubPlanView, limits: ExtenderLimits = UNPACED_LIMITS, **options: Any
) -> AsyncIterator[Client]:
    async with served(guide, limits=limits, **options) as address:
        host, _, port = address.split("/")[2].partition(":")
        client = Client(*await asyncio.open_connection(host, int(port)))
        try:
            yield client
        finally:
            client.writer.close()


def named(answer: tuple[int, dict[str, str], bytes]) -> list[str]:
    """The nodes of an answer of filter."""
    assert answer[0] == 200
    nodes: list[str] = json.loads(answer[2])["NodeNames"]
    return nodes


async def test_answers_are_the_same_either_way() -> None:
    guide, told = CountingPlanView(), list[tuple[str, str]]()
    async with connected(guide, on_answer=lambda verb, outcome, _: told.append((verb, outcome))) as client:
        status, headers, body = await client.asks(QUESTION)
        other = await client.asks(go_request(filter_request(NAMES), "filter", "Accept: */*"))
    assert (status, body) == (other[0], other[2])
    assert headers["content-type"].startswith("application/json")
    assert parsedate_to_datetime(headers["date"]).tzinfo is not None
    assert (guide.asked_at_once, guide.waited) == (1, 1)
    assert guide.answers == [("shop/web-0", FilterOutcome.STEERED, ["n1"])] * 2
    assert told == [("filter", "steered")] * 2


class ForgetfulPlanView(CountingPlanView):
    """Fails to note what was answered."""

    def answered(self, *_: Any) -> None:
        raise RuntimeError("not noted")


async def test_an_answer_that_cannot_be_noted_is_given_once() -> None:
    guide = ForgetfulPlanView()
    async with connected(guide) as client:
        assert named(await client.asks(QUESTION)) == ["n1"]
        assert named(await client.asks(QUESTION)) == ["n1"]
    assert (guide.asked_at_once, guide.waited) == (2, 0)


@pytest.mark.parametrize("at", [1, 80, QUESTION.index(b"\r\n\r\n") + 4, len(QUESTION) - 1])
async def test_a_question_in_two_parts(at: int) -> None:
    """Wherever it is cut; a head that is cut is aiohttp's, and so is a rest that comes late."""
    for pause in (0.0, 0.05):
        guide = CountingPlanView()
        async with connected(guide) as client:
            assert named(await client.asks(QUESTION[:at], QUESTION[at:], pause=pause)) == ["n1"]
            assert named(await client.asks(QUESTION)) == ["n1"]
        assert len(guide.answers) == 2


async def test_after_other_requests_of_a_connection_questions_are_answered_at_once_again() -> None:
    """Also after one whose rest came late."""
    body = preempt_request({"n1": {"Pods": [{"UID": "u1"}], "NumPDBViolations": 0}})
    guide = CountingPlanView()
    async with connected(guide) as client:
        for verb, request in (("preempt", body), ("prioritize", filter_request(NAMES)), ("unheard-of", b"{}")):
            await client.asks(go_request(request, verb))
            assert named(await client.asks(QUESTION)) == ["n1"]
        await client.asks(QUESTION[:-10], QUESTION[-10:], pause=0.05)
        assert named(await client.asks(QUESTION)) == ["n1"]
    assert (guide.asked_at_once, guide.waited) == (4, 1)


async def test_what_waits_for_a_plan_is_asked_again_the_other_way() -> None:
    guide = CountingPlanView()
    guide.at_once = [False, True]
    async with connected(guide) as client:
        assert [named(await client.asks(QUESTION)) for _ in range(2)] == [["n1"]] * 2
    assert (guide.asked_at_once, guide.waited) == (2, 1)


async def test_what_waits_for_the_watch_is_answered_when_that_has_shown_the_pod() -> None:
    """Or after a moment by the way that may wait longer, and by nobody if the client leaves."""
    guide, loop = CountingPlanView(), asyncio.get_running_loop()
    shown, late, left = (loop.create_future() for _ in range(3))
    guide.at_once = [shown, True, late]
    loop.call_later(0.001, shown.set_result, None)
    async with connected(guide) as client:
        assert named(await client.asks(QUESTION)) == ["n1"]
        assert guide.waited == 0
        assert named(await client.asks(QUESTION)) == ["n1"]
        assert guide.waited == 1
        assert late.cancelled()
    guide.at_once = [left]
    guide.was_asked.clear()
    async with connected(guide) as client:
        client.writer.write(QUESTION)
        await guide.was_asked.wait()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(left, 20)
    assert len(guide.answers) == 2


async def test_who_asks_twice_at_once_is_answered_twice_in_order() -> None:
    first, second = (go_request(filter_request(NAMES, pod(name))) for name in ("a", "b"))
    guide = CountingPlanView()
    async with connected(guide) as client:
        client.writer.write(first + second)
        assert [named(await client.answer()) for _ in range(2)] == [["n1"]] * 2
    guide.at_once = [asyncio.get_running_loop().create_future()]
    async with connected(guide) as client:
        client.writer.write(first)
        await guide.was_asked.wait()
        client.writer.write(second)
        assert [named(await client.answer()) for _ in range(2)] == [["n1"]] * 2
    assert [key for key, *_ in guide.answers] == ["shop/a", "shop/b"] * 2


async def test_no_body_is_read_as_a_question() -> None:
    """The head of a second request comes while the first question waits, and its body after the answer."""
    smuggled = go_request(filter_request(NAMES, pod("smuggled")))
    head = go_request(smuggled, "prioritize")[: -len(smuggled)]
    guide, shown = CountingPlanView(), asyncio.get_running_loop().create_future()
    guide.at_once = [shown]
    async with connected(guide) as client:
        client.writer.write(QUESTION)
        await guide.was_asked.wait()
        client.writer.write(head)
        assert named(await client.answer()) == ["n1"]
        status, *_ = await client.asks(smuggled)
    assert status == 400
    assert [key for key, *_ in guide.answers] == ["shop/web-0"]


async def test_a_question_that_waits_is_answered_at_the_end() -> None:
    """Of the listener, as one that aiohttp has."""
    guide = CountingPlanView()
    guide.at_once = [asyncio.get_running_loop().create_future()]
    async with served(guide) as address:
        host, _, port = address.split("/")[2].partition(":")
        client = Client(*await asyncio.open_connection(host, int(port)))
        client.writer.write(QUESTION)
        await guide.was_asked.wait()
    assert named(await client.answer()) == ["n1"]
    client.writer.close()


async def test_a_connection_without_questions_ends_after_its_time_and_no_sooner() -> None:
    """Whichever way its last question was answered."""
    limits = replace(UNPACED_LIMITS, idle=0.6)
    for last in (QUESTION, go_request(filter_request(NAMES), "prioritize")):
        async with connected(CountingPlanView(), limits) as client:
            loop = asyncio.get_running_loop()
            for _ in range(4):
                await asyncio.sleep(0.3)
                await client.asks(QUESTION)
            await client.asks(last)
            before = loop.time()
            assert await asyncio.wait_for(client.reader.read(), 20) == b""
            assert loop.time() - before >= 0.5


async def test_a_client_that_reads_no_answers_gets_no_more_of_them() -> None:
    """Nothing piles up for it; once it reads, all come."""
    names = [f"node-{at:04}" for at in range(4000)]
    question, count = go_request(filter_request(names)), 400
    guide = CountingPlanView(Advice(managed=True))

    async def asks(writer: asyncio.StreamWriter) -> None:
        for _ in range(count):
            writer.write(question)
            await writer.drain()
            await asyncio.sleep(0.003)  # a question that comes with the next one is not answered at once

    async with connected(guide) as client:
        asking = asyncio.create_task(asks(client.writer))
        before = -1
        while len(guide.answers) > before:
            before = len(guide.answers)
            await asyncio.sleep(0.3)
        assert 0 < before < count
        assert all([named(await client.answer()) == names for _ in range(count)])
        await asking
    assert len(guide.answers) == count


@pytest.mark.parametrize("advice", [Advice(known=False), "not in sync", RuntimeError("broken")])
async def test_what_is_answered_slowly_or_not_at_all_is_the_other_ways(advice: Any) -> None:
    """Answers about unknown pods are paced; where nothing can be said the status says so."""
    guide = CountingPlanView()
    guide.advice = advice
    if isinstance(advice, RuntimeError):
        guide.advice = lambda *_: (_ for _ in ()).throw(advice)
    async with connected(guide) as client:
        status, *_ = await client.asks(QUESTION)
    assert status == {Advice: 200, str: 503, RuntimeError: 500}[type(advice)]
    assert len(guide.answers) == (status == 200)


async def test_a_body_of_10_mib_is_refused_as_ever() -> None:
    async with connected(CountingPlanView()) as client:
        status, *_ = await client.asks(go_request(b"x" * (10 * 1024**2))[: 1024**2])
        assert status == 413


BODY = filter_request(NAMES)
NOT_GOS = [
    go_request(BODY, "filter", "Transfer-Encoding: chunked"),
    go_request(BODY, "filter", "Expect: 100-continue"),
    go_request(BODY, "filter", "Connection: close"),
    go_request(BODY, "filter", "Content-Length: 3"),
    go_request(BODY, "filter", " folded"),
    QUESTION.replace(b"HTTP/1.1", b"HTTP/1.0"),
    QUESTION.replace(b"Host", b"Ghost"),
    QUESTION.replace(b"POST", b"PUT"),
    QUESTION.replace(b"Content-Length: ", b"Content-Length: +"),
    QUESTION.replace(b"Content-Length: ", b"Content-Length: -"),
    QUESTION.replace(b"thalweg", b"thal\x00weg"),
    QUESTION.replace(b"thalweg", b"thal\nTransfer-Encoding: chunked"),
    QUESTION.replace(b"thalweg", b"x" * 9000),
    QUESTION + b"x",
    QUESTION[:40],
    b"",
]


@pytest.mark.parametrize("data", NOT_GOS)
def test_what_go_does_not_send_is_no_such_request(data: bytes) -> None:
    assert begun(data) is None


@given(st.integers(0, len(QUESTION)))
@settings(max_examples=examples(50))
def test_what_is_missing_of_a_request(at: int) -> None:
    request, head = begun(QUESTION[:at]), len(QUESTION) - len(BODY)
    if at < head:
        assert request is None
    else:
        assert request is not None
        assert (request.path, request.body, request.missing) == (
            b"/extender/filter",
            BODY[: at - head],
            len(QUESTION) - at,
        )
