"""A view of a scenario that a test holds, with everything real but the operator."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from support.cli import node, pod
from thalweg.dumps.reader import read_dump
from thalweg_view.callers.access import Access, Caller, OneToken
from thalweg_view.callers.view_limits import DEFAULT_LIMITS, ViewLimits
from thalweg_view.errors import RequestRefused
from thalweg_view.web.page_files import PageFile
from thalweg_view.web.serving import serving

from flowcore.planning.plan_document import PlanDocument
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.reading.saved import state_of

TOKEN = "the-token"  # noqa: S105 - of a test


class HeldSource:
    """A scenario that a test changes."""

    name, version = "a test", "0"

    def __init__(self, scenario: Scenario, kind: str = "live") -> None:
        self.scenario, self.kind, self.problem = scenario, kind, ""
        self.listeners: list[Callable[[PlanDocument], None]] = []
        self.states = 0

    def unavailable(self) -> str:
        return self.problem

    async def state(self) -> AsyncIterator[bytes]:
        self.states += 1
        for line in state_of(self.scenario):
            yield line

    def on_round(self, listener: Callable[[PlanDocument], None]) -> None:
        self.listeners.append(listener)

    def plan(self, number: int, **fields: Any) -> None:
        """A round was planned."""
        plan = PlanDocument(number, 1.0, 0.1, 5, 5, "flow", 1, **fields)
        for listener in self.listeners:
            listener(plan)


class Client:
    """Asks a view."""

    def __init__(self, port: int, session: aiohttp.ClientSession, token: str = TOKEN) -> None:
        self.port, self.session, self.token = port, session, token

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def get(
        self, path: str, headers: Mapping[str, str] | None = None, method: str = "GET", **options: Any
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Status, JSON and headers of an answer."""
        sent = {"Authorization": f"Bearer {self.token}"} if headers is None else headers
        async with self.session.request(method, self.url(path), headers=sent, **options) as answer:
            found = await answer.json() if answer.content_type == "application/json" else await answer.text()
            return answer.status, found, answer.headers


class Two:
    """Two callers, of whom the second may see policies and no pods."""

    async def caller(self, token: str) -> Caller:
        if token not in ("a", "b"):
            raise RequestRefused(401, "who is that?")
        return Caller(token)

    async def may_list(self, caller: Caller, kind: str) -> bool:
        return caller.name == "a" or kind == "policies"

    async def namespaces(self, caller: Caller, _known: object) -> list[str] | None:
        return None if caller.name == "a" else []


def small_scenario(folder: Path) -> Scenario:
    """Two nodes, a pod that runs and one that waits."""
    running = pod("runs", "1")
    running["spec"]["nodeName"] = "n1"
    dump = folder / "dump.json"
    items = [node("n1"), node("n2"), running, pod("waits", "64")]
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return read_dump((str(dump),))


def compute_processes() -> list[int]:
    """Ids of the compute processes of this process's views."""
    pids = [int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]
    return sorted(
        pid for pid in pids if b"thalweg_view.compute_process.compute" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )


@asynccontextmanager
async def viewed(
    source: HeldSource,
    access: Access | None = None,
    *,
    limits: ViewLimits = DEFAULT_LIMITS,
    page: dict[str, PageFile] | None = None,
    **options: Any,
) -> AsyncIterator[Client]:
    """Serves a view; its client has the right token."""
    async with (
        serving("127.0.0.1", 0, source, access or OneToken(TOKEN), limits=limits, page=page, **options) as port,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session,
    ):
        yield Client(port, session)
