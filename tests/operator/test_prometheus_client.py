"""Queries of a Prometheus that answers what no real one would; a real one is asked in tests/e2e."""

import asyncio
import base64
import json
from typing import Any

import pytest
from aiohttp import web
from support.fake_api import listening
from thalweg_operator.usage.prometheus import NodeValues, QueryFailed, connect_prometheus

NOW = 1_000_000.0


def sample(node: str | None, value: str, at: float = NOW) -> dict[str, Any]:
    return {"metric": {"job": "x"} | ({} if node is None else {"node": node}), "value": [at, value]}


def vector(*samples: Any) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "vector", "result": list(samples)}}


async def ask(body: Any, status: int = 200) -> NodeValues:
    async def answer(request: web.Request) -> web.Response:
        assert request.query["query"] == 'sum by (node) (x{a="b"})'
        if isinstance(body, bytes):
            return web.Response(body=body, status=status)
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_get("/prefix/api/v1/query", answer)
    async with listening(app) as port, connect_prometheus(f"http://127.0.0.1:{port}/prefix/") as client:
        return await client.node_values("cpu", 'sum by (node) (x{a="b"})', NOW)


def test_values_by_node() -> None:
    """Each sample with a label node is the value of that node."""
    found = asyncio.run(ask(vector(sample("a", "1.5"), sample("b", "0", NOW - 30))))
    assert found == NodeValues({"a": (NOW, 1.5), "b": (NOW - 30, 0.0)}, [])


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (sample("bad", "NaN"), "query cpu: node bad: value: it is not a number"),
        (sample("bad", "+Inf"), "query cpu: node bad: value: it is infinite"),
        (sample("bad", "-1"), "query cpu: node bad: value: -1 is negative"),
        (sample("bad", "1e30"), "query cpu: node bad: value: 1e+30 is more than any node has"),
        (sample("bad", "much"), "query cpu: sample: could not convert string to float: 'much'"),
        (sample("bad", "1", NOW + 3600), "query cpu: node bad: time: it lies 3600 s in the future"),
        (sample("good", "2"), "query cpu: node good: there are two samples of it: write sum by (node) (...)"),
        (sample(None, "1"), "query cpu: sample: it has no label node: write sum by (node) (...)"),
        (sample("bad", "NOT UTF-8"), "query cpu: sample: "),  # msgspec's words, which differ by its version
        ({"value": [NOW, "1"]}, "query cpu: sample: Object missing required field `metric`"),
    ],
)
def test_one_bad_sample(bad: Any, sentence: str) -> None:
    """It is refused with a sentence that names the query and the node; the others count."""
    body = json.dumps(vector(sample("good", "1"), bad, sample("other", "3"))).encode()
    found = asyncio.run(ask(body.replace(b"NOT UTF-8", b"\xff")))
    assert found.values == {"good": (NOW, 1.0), "other": (NOW, 3.0)}
    (refused,) = found.refused
    assert refused.startswith(sentence)


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        ({"status": "error", "errorType": "bad_data", "error": "unknown function"}, 400, "400: unknown function"),
        ({"status": "error", "errorType": "timeout", "error": "took too long"}, 503, "503: took too long"),
        (vector() | {"data": {"resultType": "matrix", "result": []}}, 200, "the result is a matrix, not a vector"),
        (vector() | {"data": {"resultType": "scalar", "result": [1, "2"]}}, 200, "the result is a scalar"),
        (b"<html>login</html>", 200, "200: <html>login</html>"),
        (b'{"status": "success"}', 200, "200: {"),
        (b'{"status": "\xff"}', 200, "200: {"),
        (b'{"status": "success", "data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 200, "200: {"),
    ],
)  # fmt: skip
def test_no_samples(body: Any, status: int, problem: str) -> None:
    """The error says what came instead."""
    with pytest.raises(QueryFailed, match=problem):
        asyncio.run(ask(body, status))


def test_nobody_answers() -> None:
    """The error names the server, without the password in the URL."""

    async def lonely() -> None:
        async with listening(web.Application()) as port:
            pass
        async with connect_prometheus(f"http://reader:secret@127.0.0.1:{port}") as client:
            await client.node_values("cpu", "up", NOW)

    with pytest.raises(QueryFailed, match=r"^http://127\.0\.0\.1:\d+/? does not answer: "):
        asyncio.run(lonely())


def test_the_password_of_the_url_is_sent() -> None:
    """As basic authentication; no sentence shows it, see above."""
    seen: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.json_response(vector())

    async def run() -> None:
        app = web.Application()
        app.router.add_get("/api/v1/query", answer)
        async with listening(app) as port:
            for login in ("reader:secret@", ""):
                async with connect_prometheus(f"http://{login}127.0.0.1:{port}") as client:
                    await client.node_values("cpu", "up", NOW)

    asyncio.run(run())
    assert seen == [f"Basic {base64.b64encode(b'reader:secret').decode()}", None]
