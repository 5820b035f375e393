"""/healthz, /readyz and /metrics, and the measurement of the event loop's delay."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from thalweg_listener import ConnectionLimits, Handler, OnRefused, listening

from thalweg_operator.metrics import Metrics

_log = structlog.get_logger()
_SLEEP = 0.02
#: Seconds without confirmation of a kind after which the snapshot counts as stale. The reflector restarts a silent
#: watch after 75 s, and an accepted watch is a confirmation.
STALE = 90.0


#: Name of the check of /readyz that fails while this process does not lead. Others have the names of kinds.
LEASE: Final = "lease"
#: One request a connection: an idle client holds no place.
PAGE_LIMITS = ConnectionLimits(connections=64, idle=0.0)


def pages(
    metrics: Metrics, readiness: Callable[[], Mapping[str, str]], stuck: Callable[[], str], on_refused: OnRefused
) -> Handler:
    """Answers GET of the three pages.

    Args:
        readiness: problem of each check of /readyz by its name; "": none.
        stuck: reason why the round loop makes no progress; "" when it does.
        on_refused: called for each request with another path or method.
    """

    def healthz(_request: web.BaseRequest) -> web.Response:
        problem = stuck()
        if problem:
            return web.Response(status=503, text=f"no progress: {problem}\n")
        return web.Response(text="ok\n")

    def readyz(request: web.BaseRequest) -> web.Response:
        # As kube-apiserver does: the parameter may be repeated, and an unknown name changes nothing.
        checks, excluded = readiness(), request.query.getall("exclude", [])
        problems = [f"{name}: {problem}\n" for name, problem in checks.items() if problem and name not in excluded]
        if not problems:
            return web.Response(text="ok\n")
        unknown = ", ".join(f'"{name}"' for name in dict.fromkeys(excluded) if name not in checks)
        warning = f"warning: no such check to exclude: {unknown}\n" if unknown else ""
        return web.Response(status=503, text="".join(problems) + warning)

    def serve_metrics(_request: web.BaseRequest) -> web.Response:
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    handlers = {"/healthz": healthz, "/readyz": readyz, "/metrics": serve_metrics}

    async def answer(request: web.BaseRequest) -> web.Response:
        page = handlers.get(request.path)
        if page is not None and request.method in ("GET", "HEAD"):
            return page(request)
        status, problem = (404, "there is no such page") if page is None else (405, "pages are read by GET")
        on_refused("path", request.remote or "", f"{problem}; pages: {', '.join(handlers)}")
        return web.Response(status=status, text=f"{problem}\n")

    return answer


@asynccontextmanager
async def serving_pages(
    addresses: Iterable[tuple[str, int] | None], answer: Handler, on_refused: OnRefused
) -> AsyncIterator[None]:
    """Serves the pages at each of these addresses, as host and port, while the block runs.

    Raises:
        CannotListen: an address is in use, or not one of this machine.
    """
    async with AsyncExitStack() as stack:
        for host, port in filter(None, addresses):
            await stack.enter_async_context(listening(host, port, answer, PAGE_LIMITS, on_refused))
            _log.info("listening", host=host, port=port)
        yield


def kind_problems(
    last_heard: Mapping[str, tuple[bool, float | None]], now: float, never_stale: Collection[str] = ()
) -> dict[str, str]:
    """What is wrong with the snapshot of each kind: it was never complete, or is stale; "": nothing.

    Args:
        last_heard: per kind: whether it was ever complete, and the time of its last confirmation by the API server.
        now: seconds of the same clock.
        never_stale: kinds that have to be complete once and never count as stale.
    """
    problems = {}
    for kind, (complete, last) in last_heard.items():
        problems[kind] = "" if complete else "not in sync yet"
        if complete and kind not in never_stale and last is not None and now - last > STALE:
            problems[kind] = f"nothing heard for {now - last:.0f} s"
    return problems


class Liveness:
    """Whether the round loop makes progress.

    The loop is healthy while it waits for work. It is stuck in two cases: one turn takes longer than
    5 x ``round_timeout``, or no round succeeded for 20 x ``round_timeout`` although there was work. By then the search
    for faulty pods (quarantine.py) must have ended.
    """

    def __init__(self, round_timeout: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._turn_bound, self._success_bound = 5 * round_timeout, 20 * round_timeout
        self._clock = clock
        self._turn: float | None = None
        self._owed: float | None = None

    def round_began(self) -> None:
        """A turn with work begins."""
        self._turn = self._clock()
        if self._owed is None:
            self._owed = self._turn

    def round_ended(self, *, success: bool) -> None:
        """The turn is over; ``success``: its round succeeded."""
        self._turn = None
        if success:
            self._owed = None

    @property
    def under_way(self) -> bool:
        """Whether a turn with work has begun and not ended."""
        return self._turn is not None

    def problem(self) -> str:
        """Reason why there is no progress; "" if there is."""
        now = self._clock()
        if self._turn is not None and now - self._turn > self._turn_bound:
            return f"one round takes {now - self._turn:.0f} s"
        if self._owed is not None and now - self._owed > self._success_bound:
            return f"no round succeeded for {now - self._owed:.0f} s"
        return ""


async def watch_event_loop(metrics: Metrics) -> None:
    """Measures the delay of the event loop, and the CPU time of its thread between two turns."""
    loop = asyncio.get_running_loop()
    longest = busiest = 0.0
    worked = time.thread_time()
    while True:
        before, worked_before = loop.time(), worked
        await asyncio.sleep(_SLEEP)
        worked = time.thread_time()
        lag, busy = loop.time() - before - _SLEEP, worked - worked_before
        metrics.loop_lag.observe(lag)
        if lag > longest:
            longest = lag
            metrics.longest_lag.set(lag)
        if busy > busiest:
            busiest = busy
            metrics.longest_busy.set(busy)
