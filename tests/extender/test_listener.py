"""How much may be asked of the extender at a time, and what that costs the others."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from support.callers import PASSING_ADVICE, Refusals, files, opened, post_filter, trusting
from support.extender import UNPACED_LIMITS, StubPlanView, filter_request, pod, served
from support.operator import until
from thalweg_controlplane.certificates import Authority
from thalweg_extender import Certificates, ExtenderLimits

from flowcore.model.advice import Advice, ExtenderPod


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


HEAD = b"POST /extender/filter HTTP/1.1\r\nHost: a\r\n"


@pytest.mark.parametrize(
    ("tls", "says"), [(False, b""), (False, HEAD), (True, b"")], ids=["silent", "half a head", "no TLS handshake"]
)
async def test_five_hundred_slow_connections(ours: Authority, tls: bool, says: bytes) -> None:  # noqa: FBT001
    """Beyond the cap each ends an older one; a caller that asks is answered at once, before, meanwhile and after."""
    refused = Refusals()
    certificates = Certificates(files(ours)) if tls else None
    context: ssl.SSLContext | bool = trusting(ours.certificate, ours.client("client")) if tls else True
    async with served(StubPlanView(PASSING_ADVICE), certificates=certificates, on_refused=refused) as address:
        async with aiohttp.ClientSession() as kept:

            async def again() -> int:
                async with kept.post(f"{address}/filter", data=filter_request(["n1"]), ssl=context) as answer:
                    return answer.status

            assert await again() == 200
            async with opened(address, 500, says) as readers:
                assert await again() == 200
                assert await post_filter(address, context) == 200
                ended = sum(reader.at_eof() or reader.exception() is not None for reader in readers)
                assert ended >= 500 - UNPACED_LIMITS.connections
        assert refused.fields["connections"] >= 500 - UNPACED_LIMITS.connections


async def test_a_client_that_goes_before_its_handshake_is_told_of_in_words(ours: Authority) -> None:
    """The log has a sentence, not the name of an exception."""
    said: list[str] = []

    def refused(_field: str, _name: str, problem: str) -> None:
        said.append(problem)

    certificates = Certificates(files(ours))
    async with served(StubPlanView(PASSING_ADVICE), certificates=certificates, on_refused=refused) as address:
        at = urlsplit(address)
        _, writer = await asyncio.open_connection(at.hostname, at.port)
        writer.write(b"\x16")  # the first byte of a handshake
        await writer.drain()
        writer.close()
        await until(lambda: bool(said), 10, lambda: "the listener says nothing")
    assert said == ["the client closed the connection before it was set up"]


async def test_connections_that_have_asked_are_not_ended_for_others() -> None:
    """With all of them taken by callers that asked, the new one is closed."""
    limits = replace(UNPACED_LIMITS, connections=3)
    async with served(StubPlanView(PASSING_ADVICE), limits=limits) as address, AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(aiohttp.ClientSession()) for _ in range(3)]
        for _ in range(2):
            for session in sessions:
                async with session.post(f"{address}/filter", data=filter_request(["n1"])) as answer:
                    assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await post_filter(address)
        await sessions.pop().close()
        await asyncio.sleep(0.05)
        assert await post_filter(address) == 200


async def test_a_head_that_does_not_end_and_a_body_that_does_not() -> None:
    """Both are given up in time, though a byte comes now and then."""
    limits = replace(UNPACED_LIMITS, head=0.3, read=0.3)
    refused = Refusals()
    async with served(StubPlanView(PASSING_ADVICE), limits=limits, on_refused=refused) as address:
        host, _, port = address.split("/")[2].partition(":")

        async def dribbles(first: bytes) -> bytes:
            reader, writer = await asyncio.open_connection(host, int(port))
            answer = asyncio.create_task(reader.read())
            writer.write(first)
            try:
                while not answer.done():
                    writer.write(b"x")
                    await asyncio.sleep(0.05)
                return await answer
            except ConnectionError:
                return b""
            finally:
                writer.close()

        assert await asyncio.wait_for(dribbles(HEAD + b"X-Slow: "), 30) == b""
        body = await asyncio.wait_for(dribbles(HEAD + b"Content-Length: 100000\r\n\r\n{"), 30)
        assert not body or body.startswith(b"HTTP/1.1 408 ")
    assert refused.fields == {"head time": 1, "body time": 1}


async def test_requests_beyond_those_in_flight_are_503() -> None:
    """With a time to come back; the others are answered, and afterwards all are."""
    limits = replace(UNPACED_LIMITS, in_flight=2)
    told: Counter[str] = Counter()
    refused = Refusals()
    under_way, go_on = asyncio.Semaphore(0), asyncio.Event()

    def on_answer(_verb: str, outcome: str, _seconds: float) -> None:
        told[outcome] += 1

    class SlowPlanView(StubPlanView):
        def planned_at_once(self, _extender_pod: ExtenderPod, _nodes: Sequence[str]) -> bool:
            return True

        async def until_planned(self, _extender_pod: ExtenderPod, _nodes: Sequence[str]) -> None:
            under_way.release()
            await go_on.wait()

    async with (
        served(SlowPlanView(PASSING_ADVICE), limits=limits, on_answer=on_answer, on_refused=refused) as address,
        aiohttp.ClientSession() as http,
    ):

        async def asks() -> int:
            async with http.post(f"{address}/filter", data=filter_request(["n1"])) as answer:
                return answer.status

        both = [asyncio.create_task(asks()) for _ in range(2)]
        for _ in both:
            await under_way.acquire()
        async with http.post(f"{address}/filter", data=filter_request(["n1"])) as answer:
            assert answer.status == 503
            assert answer.headers["Retry-After"] == "1"
        go_on.set()
        assert await asyncio.gather(*both) == [200, 200]
        assert await post_filter(address) == 200
    assert told["busy"] == refused.fields["requests in flight"] == 1


async def test_slow_bodies_keep_nobody_out() -> None:
    """A caller that asks takes the place of the oldest whose body is still under way."""
    limits = replace(UNPACED_LIMITS, in_flight=4)
    refused = Refusals()
    async with served(StubPlanView(PASSING_ADVICE), limits=limits, on_refused=refused) as address:
        async with opened(address, 20, HEAD + b"Content-Length: 100\r\n\r\n{") as readers:
            for _ in range(5):
                assert await post_filter(address) == 200
            ended = [await reader.read() for reader in readers[:16]]
            assert all(answer.startswith(b"HTTP/1.1 503 ") for answer in ended)
            assert not any(reader.at_eof() for reader in readers[-3:])
        assert await post_filter(address) == 200
    assert refused.fields["requests in flight"] >= 16


async def test_a_body_is_not_unpacked() -> None:
    """A small body that would unpack to a large one is taken as it is: not JSON."""
    async with served(StubPlanView(PASSING_ADVICE)) as address, aiohttp.ClientSession() as http:
        headers = {"Content-Encoding": "gzip"}
        async with http.post(
            f"{address}/filter", data=gzip.compress(filter_request(["n1"])), headers=headers
        ) as answer:
            assert answer.status == 400


async def test_many_requests_on_one_connection_do_not_go_first() -> None:
    """A caller that sends thousands at once and one that sends one after the other take turns."""
    order: list[str] = []

    def says(asked: object, _names: object) -> Advice:
        order.append(asked.name)  # type: ignore[attr-defined]
        return PASSING_ADVICE

    body = filter_request(["n1"], pod("flood"))
    many = (HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body) * 2000
    async with served(StubPlanView(says)) as address, opened(address, 1, many), aiohttp.ClientSession() as http:
        await until(lambda: order, 10, lambda: "the flood to begin")
        for _ in range(5):
            async with http.post(f"{address}/filter", data=filter_request(["n1"], pod("good"))) as answer:
                assert answer.status == 200
        last = max(at for at, name in enumerate(order) if name == "good")
        assert last < 1500


@pytest.mark.parametrize("body", [b"?", filter_request(["n1"], pod("ghost"))], ids=["nonsense", "no such pod"])
async def test_a_flood_gets_few_answers(body: bytes) -> None:
    """Answers that are of no use wait for each other, not among requests in flight; known pods do not wait for them."""
    guide = StubPlanView(lambda asked, _names: Advice(known=asked.name != "ghost"))
    told: Counter[str] = Counter()

    def on_answer(_verb: str, outcome: str, _seconds: float) -> None:
        told[outcome] += 1

    async with served(
        guide, limits=ExtenderLimits(in_flight=1, unhelpful_interval=3600.0), on_answer=on_answer
    ) as address:
        flood = HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
        async with opened(address, 20, flood * 10):
            await until(lambda: told["refused"] + told["unknown"] >= 20, 10, lambda: f"the flood; {told}")
            assert [await post_filter(address) for _ in range(5)] == [200] * 5
            # One answer at once, and with it that connection's next request; the others wait for their turn.
            assert told["refused"] + told["unknown"] == 21
    assert told["passed"] == 5


async def test_nothing_is_kept_of_callers_that_left() -> None:
    """Hundreds whose answers would have been an hour away: not one of them is still waited for."""
    async with served(StubPlanView(PASSING_ADVICE), limits=ExtenderLimits(unhelpful_interval=3600.0)) as address:
        before = len(asyncio.all_tasks())
        for _ in range(4):
            async with opened(address, 100, HEAD + b"Content-Length: 1\r\n\r\n?"):
                await until(lambda: len(asyncio.all_tasks()) >= before + 90, 10, lambda: "them to be there")
            await until(lambda: len(asyncio.all_tasks()) <= before, 10, lambda: "them to be gone")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/extender/filter", 405),
        ("POST", "/extender/x", 404),
        ("GET", "/metrics", 404),
        ("POST", "/extender/bind", 404),
    ],
)
async def test_nothing_else_is_served_there(method: str, path: str, status: int) -> None:
    """Neither other paths, nor other methods, nor the bind verb, which kube-scheduler keeps."""
    async with (
        served(StubPlanView(PASSING_ADVICE)) as address,
        aiohttp.ClientSession() as http,
        http.request(method, address.removesuffix("/extender") + path) as answer,
    ):
        assert answer.status == status


@pytest.mark.parametrize(
    "says",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS, to a plain listener
        b"GET / HTTP/9.9\r\n\r\n",
        HEAD + b"Content-Length: many\r\n\r\n",
        HEAD + b"X-Long: " + b"x" * 20_000 + b"\r\n\r\n",
        HEAD + b"".join(b"X-%d: x\r\n" % at for at in range(5_000)) + b"\r\n",
    ],
    ids=["TLS", "version", "length", "long header", "many headers"],
)
async def test_what_is_no_http_is_refused_in_a_few_words(says: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Counted once each, without a traceback in the log, and the next caller is answered."""
    refused = Refusals()
    async with served(StubPlanView(PASSING_ADVICE), on_refused=refused) as address:
        for _ in range(3):
            async with opened(address, 1, says) as (reader,):
                answer = await asyncio.wait_for(reader.read(), 30)
            assert answer.split()[1] == b"400", answer
        assert await post_filter(address) == 200
    assert refused.fields == {"HTTP": 3}
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_what_is_refused_is_told_by_its_field() -> None:
    """Each of them once, with fields that are ours and none of the caller's words."""
    refused = Refusals()
    posts: list[tuple[str, bytes]] = [
        ("filter", b"?"),
        ("filter", b" " * (UNPACED_LIMITS.body + 1)),
        ("filter", json.dumps({"Pod": None, "NodeNames": []}).encode()),
        ("nothing", b""),
    ]
    async with served(StubPlanView(PASSING_ADVICE), on_refused=refused) as address, aiohttp.ClientSession() as http:
        for verb, body in posts:
            async with http.post(f"{address}/{verb}", data=body) as answer:
                assert answer.status in (400, 404, 413)
    assert refused.fields == {"body": 2, "body size": 1, "path": 1}
