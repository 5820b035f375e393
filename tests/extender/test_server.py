"""The extender over real HTTP on loopback: what it answers, and what it survives."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Self

import aiohttp
import pytest
from aiohttp.web_protocol import RequestHandler
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from support.extender import StubPlanView, filter_request, pod, preempt_request, served
from support.profiles import examples
from thalweg_extender.answers import FilterOutcome
from thalweg_extender.extender_limits import DEFAULT_LIMITS

from flowcore.model.advice import HELD_MESSAGE, Advice

NAMES = [f"node-{i:04}" for i in range(5000)]
STEERED = Advice(managed=True, node="node-0007", hold=True, scores={"node-0001": 3, "elsewhere": 9})


async def post(address: str, verb: str, body: bytes) -> tuple[int, str]:
    """Status and text."""
    async with aiohttp.ClientSession() as http, http.post(f"{address}/{verb}", data=body) as answer:
        return answer.status, await answer.text()


async def filtered(address: str, body: bytes) -> Any:
    """The answer of filter, which must be 200."""
    status, text = await post(address, "filter", body)
    assert status == 200, text
    return json.loads(text)


async def test_a_pod_from_its_first_question_to_its_node() -> None:
    """Held while there is no plan; nominated, kube-scheduler asks about one node, and that one passes."""
    guide = StubPlanView(Advice(managed=True, hold=True))
    async with served(guide) as address:
        held = await filtered(address, filter_request(NAMES))
        assert held == {
            "Nodes": None,
            "NodeNames": [],
            "FailedNodes": None,
            "FailedAndUnresolvableNodes": {NAMES[0]: HELD_MESSAGE},
            "Error": "",
        }
        guide.advice = STEERED
        let_through = await filtered(address, filter_request(["node-0007"], pod(nominatedNodeName="node-0007")))
        assert let_through["NodeNames"] == ["node-0007"]
    (first, names), (second, _) = guide.asked
    assert (first.key, first.nominated, names) == ("shop/web-0", "", NAMES)
    assert second.nominated == "node-0007"
    assert guide.answers == [
        ("shop/web-0", FilterOutcome.HELD, []),
        ("shop/web-0", FilterOutcome.STEERED, ["node-0007"]),
    ]


async def test_prioritize_answers_a_bare_list() -> None:
    """With the plan's scores for the nodes asked about."""
    async with served(StubPlanView(STEERED)) as address:
        assert await post(address, "prioritize", filter_request(NAMES)) == (200, '[{"Host":"node-0001","Score":3}]')
    async with served(StubPlanView(Advice())) as address:
        assert await post(address, "prioritize", filter_request(NAMES)) == (200, "[]")


async def test_preempt_answers_the_plans_victims_for_managed_pods() -> None:
    """Nobody where the plan has none; for other pods who was found."""
    found = {"n1": {"Pods": [{"UID": "u1"}], "NumPDBViolations": 0}}
    async with served(StubPlanView(STEERED)) as address:
        assert await post(address, "preempt", preempt_request(found)) == (200, '{"NodeNameToMetaVictims":{}}')
    async with served(StubPlanView(Advice(managed=True, hold=True, victims={"n2": ["u2"]}))) as address:
        status, text = await post(address, "preempt", preempt_request(found))
        planned = {"n2": {"Pods": [{"UID": "u2"}], "NumPDBViolations": 0}}
        assert (status, json.loads(text)) == (200, {"NodeNameToMetaVictims": planned})
    guide = StubPlanView(Advice())
    async with served(guide) as address:
        status, text = await post(address, "preempt", preempt_request(found))
        assert (status, json.loads(text)) == (200, {"NodeNameToMetaVictims": found})
    assert guide.answers == []
    assert [names for _, names in guide.asked] == [["n1"]]


async def test_without_node_names_it_says_what_to_configure() -> None:
    """kube-scheduler prints Error; where an answer has none it prints the code."""
    whole = {"metadata": {}, "items": [{"metadata": {"name": "n1"}}]}
    async with served(guide := StubPlanView(STEERED)) as address:
        answer = await filtered(address, filter_request(None, nodes=whole))
        assert "set nodeCacheCapable: true" in answer["Error"]
        assert answer["NodeNames"] is None
        for verb, body in (
            ("prioritize", filter_request(None, nodes=whole)),
            ("preempt", preempt_request(None, whole={})),
        ):
            status, text = await post(address, verb, body)
            assert status == 400
            assert "set nodeCacheCapable: true" in text
    assert guide.asked == []


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
async def test_what_is_not_json_is_refused_with_a_sentence(verb: str) -> None:
    """And the next request is answered."""
    async with served(StubPlanView(STEERED)) as address:
        for body in (b"", b"what?", b"[1]", b"\xff" * 100, b'{"Pod":' * 50_000):
            status, text = await post(address, verb, body)
            assert status == 400
            assert "not JSON" in text or "not one of kube-scheduler's" in text
        assert (await filtered(address, filter_request(["node-0007"])))["NodeNames"] == ["node-0007"]


async def test_a_guide_that_cannot_answer_yet_is_503_with_its_reason() -> None:
    """For each verb; nothing is looked at."""
    async with served(guide := StubPlanView("lease: standby, another leads")) as address:
        for verb, body in (
            ("filter", filter_request(NAMES)),
            ("prioritize", filter_request(NAMES)),
            ("preempt", preempt_request({})),
        ):
            async with aiohttp.ClientSession() as http, http.post(f"{address}/{verb}", data=body) as answer:
                assert (answer.status, await answer.text()) == (503, "lease: standby, another leads\n")
                assert answer.headers["Connection"] == "close", "the next connection may lead to the leader"
    assert (guide.asked, guide.answers) == ([], [])


async def test_another_leads_after_a_wait_for_the_plan() -> None:
    """Then the plan of this replica says nothing any more."""
    guide = StubPlanView(STEERED)

    def lose() -> None:
        guide.advice = "lease: standby, another leads"

    guide.meanwhile = lose
    async with served(guide) as address:
        assert await post(address, "filter", filter_request(NAMES)) == (503, "lease: standby, another leads\n")
    assert not guide.answers


async def test_a_guide_that_fails_is_500_and_one_line_in_the_log() -> None:
    """The server lives on."""

    def fails(*_: object) -> Advice:
        raise LookupError("no such thing")

    guide = StubPlanView(fails)
    async with served(guide) as address:
        with capture_logs() as lines:
            status, _text = await post(address, "filter", filter_request(NAMES))
        assert status == 500
        assert [(line["log_level"], line["verb"]) for line in lines] == [("error", "filter")]
        guide.advice = STEERED
        assert (await filtered(address, filter_request(["node-0007"])))["NodeNames"] == ["node-0007"]


async def test_on_answer_is_told_of_every_answer() -> None:
    """Verb and what became of it, for metrics."""
    told: list[tuple[str, str]] = []
    guide = StubPlanView(STEERED)

    def on_answer(verb: str, outcome: str, seconds: float) -> None:
        assert seconds >= 0
        told.append((verb, outcome))

    async with served(guide, on_answer=on_answer) as address:
        found = {"n1": {"Pods": [{"UID": "u1"}], "NumPDBViolations": 0}}
        for says in (STEERED, Advice(), "not now"):
            guide.advice = says
            await post(address, "filter", filter_request(["node-0007"]))
            await post(address, "preempt", preempt_request(found))
        guide.advice = Advice(managed=True, hold=True)
        await post(address, "filter", filter_request(["node-0007"]))
        await post(address, "prioritize", filter_request(["node-0007"]))
        await post(address, "filter", b"?")
    assert told == [
        ("filter", "steered"),
        ("preempt", "spared"),
        ("filter", "passed"),
        ("preempt", "preempted"),
        ("filter", "unready"),
        ("preempt", "unready"),
        ("filter", "held"),
        ("prioritize", "scored"),
        ("filter", "refused"),
    ]


async def test_bodies_up_to_4_mib_are_read() -> None:
    """One byte more is 413: with a length in the header and without."""
    assert DEFAULT_LIMITS.body == 4 * 1024**2
    small = filter_request(["node-0007"])
    largest = small + b" " * (DEFAULT_LIMITS.body - len(small))

    async def chunked(body: bytes) -> Any:
        for at in range(0, len(body), 1 << 20):
            yield body[at : at + (1 << 20)]

    async with served(StubPlanView(STEERED)) as address, aiohttp.ClientSession() as http:
        assert (await filtered(address, largest))["NodeNames"] == ["node-0007"]
        for body in (largest + b" ", chunked(largest + b" ")):
            try:
                async with http.post(f"{address}/filter", data=body) as answer:
                    assert answer.status == 413
                    assert "4 MiB" in await answer.text()
            except aiohttp.ClientConnectionError:
                assert not isinstance(body, bytes)  # told in mid-stream, a client may see the end before the answer
        assert (await filtered(address, small))["NodeNames"] == ["node-0007"]


async def test_many_requests_at_once() -> None:
    """Each gets the answer to its own question."""
    guide = StubPlanView(lambda asked, _names: Advice(managed=True, node=asked.name, hold=True))
    async with served(guide) as address, aiohttp.ClientSession() as http:

        async def ask(name: str) -> list[str]:
            async with http.post(f"{address}/filter", data=filter_request(NAMES, pod(name))) as answer:
                found: list[str] = (await answer.json())["NodeNames"]
                return found

        assert await asyncio.gather(*map(ask, NAMES[:100])) == [[name] for name in NAMES[:100]]


class Raw:
    """A connection on which a test writes bytes as it likes."""

    def __init__(self, address: str) -> None:
        self._host, _, self._port = address.removeprefix("http://").removesuffix("/extender").partition(":")

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._host, int(self._port), limit=1 << 22)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def send(self, part: bytes) -> None:
        self._writer.write(part)
        await self._writer.drain()

    async def answer(self) -> tuple[bytes, bytes]:
        """Head and body, whose length the head must tell."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        (length,) = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        return head, await self._reader.readexactly(int(length.partition(b":")[2]))


def request(body: bytes) -> bytes:
    """As Go's client writes a filter request."""
    head = (
        "POST /extender/filter HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Go-http-client/1.1\r\n"
        f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
    )
    return head.encode() + body


async def test_a_connection_is_kept_and_answers_are_not_chunked_or_compressed() -> None:
    """The body ends with the JSON: Go keeps a connection only when it has read all of an answer."""
    async with served(StubPlanView(Advice())) as address, Raw(address) as raw:
        for _ in range(3):
            await raw.send(request(filter_request(NAMES)))
            head, body = await raw.answer()
            assert head.startswith(b"HTTP/1.1 200 ")
            assert b"transfer-encoding" not in head.lower()
            assert b"content-encoding" not in head.lower()
            assert b"connection: close" not in head.lower()
            assert b"content-type: application/json" in head.lower()
            assert json.loads(body)["NodeNames"] == NAMES
            assert body.endswith(b"}")


async def test_an_answer_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Head and body apart would cost a delayed acknowledgement where Nagle's algorithm is on."""
    writes: list[bytes] = []

    def spy(transport: Any) -> None:
        write = transport.write
        transport.write = lambda data: (writes.append(bytes(data)), write(data))[1]
        transport.writelines = lambda parts: transport.write(b"".join(parts))

    made = RequestHandler.connection_made
    monkeypatch.setattr(RequestHandler, "connection_made", lambda self, to: (spy(to), made(self, to))[1])
    async with served(StubPlanView(Advice())) as address, Raw(address) as raw:
        await raw.send(request(filter_request(NAMES)))
        head, body = await raw.answer()
    assert writes == [head + body]


@pytest.mark.parametrize("step", [1, 7, 1000])
async def test_a_body_may_come_in_parts(step: int) -> None:
    """However it is split."""
    text = request(filter_request(["node-0007"]))
    async with served(StubPlanView(STEERED)) as address, Raw(address) as raw:
        for at in range(0, len(text), step):
            await raw.send(text[at : at + step])
            await asyncio.sleep(0)
        _, body = await raw.answer()
        assert json.loads(body)["NodeNames"] == ["node-0007"]


async def test_a_client_that_leaves_in_mid_body_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """It is no failure of ours, so none is logged."""
    text = request(filter_request(NAMES))
    chunked = b"POST /extender/filter HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}   \r\n"
    async with served(guide := StubPlanView(STEERED)) as address:
        for part in (text[:-1], text[: text.index(b"{") + 1], text[:100], chunked, chunked[:-4]):
            async with Raw(address) as raw:
                await raw.send(part)
                await asyncio.sleep(0.02)
        assert (await filtered(address, filter_request(["node-0007"])))["NodeNames"] == ["node-0007"]
    assert len(guide.answers) == 1
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@settings(max_examples=examples(25))
@given(bodies=st.lists(st.binary(max_size=200), max_size=5), head=st.binary(max_size=60))
def test_garbage_never_kills_it(bodies: list[bytes], head: bytes) -> None:
    """Bodies of any bytes, and bytes in place of a request; then a good request is answered."""

    async def throw() -> None:
        async with served(StubPlanView(STEERED)) as address:
            for body in bodies:
                assert (await post(address, "filter", body))[0] in {200, 400}
            async with Raw(address) as raw:
                await raw.send(head)
            assert (await filtered(address, filter_request(["node-0007"])))["NodeNames"] == ["node-0007"]

    asyncio.run(throw())
