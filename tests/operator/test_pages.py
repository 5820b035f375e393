"""The operator's own pages: what they say, and what no caller can do to them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

import aiohttp
import pytest
from structlog.testing import capture_logs
from support.callers import opened
from thalweg_listener import listening
from thalweg_operator.api.bad_input import FIRST_REFUSED, BadInput
from thalweg_operator.health import PAGE_LIMITS, pages
from thalweg_operator.metrics import Metrics


@dataclass
class Served:
    """The pages of an operator whose state a test sets."""

    address: str = ""
    checks: dict[str, str] = field(default_factory=dict)
    problem: str = ""
    metrics: Metrics = field(default_factory=Metrics)

    async def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        """Status and text, on a connection of its own."""
        async with aiohttp.ClientSession() as http, http.request(method, self.address + path) as answer:
            return answer.status, await answer.text()

    def refused(self) -> Counter[str]:
        """How many requests were refused, by field."""
        (family,) = self.metrics.refused_inputs.collect()
        counted = [each for each in family.samples if each.name.endswith("_total")]
        assert all(each.labels["kind"] == "page request" for each in counted)
        return Counter({each.labels["field"]: int(each.value) for each in counted})


@asynccontextmanager
async def served(head: float = PAGE_LIMITS.head) -> AsyncIterator[Served]:
    found = Served()
    on_refused = partial(BadInput(found.metrics).refuse, "page request")
    answer = pages(found.metrics, lambda: found.checks, lambda: found.problem, on_refused)
    async with listening("127.0.0.1", 0, answer, replace(PAGE_LIMITS, head=head), on_refused) as port:
        found.address = f"http://127.0.0.1:{port}"
        yield found


async def test_the_pages_say_why() -> None:
    """503 and a sentence for each problem, or 200. Checks can be excluded, as kube-apiserver's can."""
    async with served() as page:
        page.checks = {"nodes": "not in sync yet", "lease": "standby, another leads"}
        page.problem = "one round takes 301 s"
        assert await page.get("/readyz") == (503, "nodes: not in sync yet\nlease: standby, another leads\n")
        assert await page.get("/readyz?exclude=lease") == (503, "nodes: not in sync yet\n")
        assert await page.get("/readyz?exclude=lease&exclude=nodes&exclude=moon") == (200, "ok\n")
        assert await page.get("/readyz?exclude=lease,nodes&exclude=nodes&exclude=moon") == (
            503,
            'lease: standby, another leads\nwarning: no such check to exclude: "lease,nodes", "moon"\n',
        )
        assert await page.get("/healthz") == (503, "no progress: one round takes 301 s\n")
        page.checks, page.problem = dict.fromkeys(page.checks, ""), ""
        assert await page.get("/readyz") == (200, "ok\n")
        assert await page.get("/healthz") == (200, "ok\n")
        assert "thalweg_nodes" in (await page.get("/metrics"))[1]


@pytest.mark.parametrize("says", [b"", b"GET /healthz HTTP/1.1\r\nHost: a\r\n"], ids=["silent", "half a head"])
async def test_hundreds_of_slow_connections(says: bytes) -> None:
    """Each beyond the limit ends an older one; probes are answered meanwhile."""
    async with served() as page, opened(page.address, 300, says):
        for _ in range(3):
            assert (await page.get("/healthz"))[0] == 200
        assert page.refused()["connections"] >= 300 - PAGE_LIMITS.connections


async def test_callers_that_do_not_read_keep_nobody_out() -> None:
    """They have asked for /metrics, again and again, and never take the answer."""
    asks = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 50
    async with served() as page, opened(page.address, 2 * PAGE_LIMITS.connections, asks):
        for _ in range(3):
            assert (await page.get("/healthz"))[0] == 200


async def test_a_head_that_does_not_end() -> None:
    """It is given up in time."""
    async with served(head=0.2) as page:
        async with opened(page.address, 3, b"GET /healthz HTTP/1.1\r\n") as readers:
            for reader in readers:
                with suppress(ConnectionResetError):
                    assert await asyncio.wait_for(reader.read(), 30) == b""
        assert page.refused() == {"head time": 3}


async def test_wrong_paths_and_methods_are_counted_and_logged_once() -> None:
    """404 and 405 in a sentence; what the caller sent is in no label."""
    async with served() as page:
        with capture_logs() as lines:
            for _ in range(3):
                assert (await page.get("/debug/pprof"))[0] == 404
                assert (await page.get("/healthz", "POST"))[0] == 405
        assert (await page.get("/healthz", "HEAD"))[0] == 200
        assert page.refused() == {"path": 6}
    assert [(line["event"], line["kind"], line["field"]) for line in lines] == [(FIRST_REFUSED, "page request", "path")]
