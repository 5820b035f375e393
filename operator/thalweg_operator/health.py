"""/healthz, /readyz and /metrics, and the watch on the event loop itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from thalweg_operator.metrics import Metrics

_SLEEP = 0.02
#: Seconds without a sign of life of a kind after which the snapshot counts as stale. A silent watch is begun again
#: after 75 s, and the answer to that is a sign of life.
STALE = 90.0


def application(metrics: Metrics, not_ready: Callable[[], list[str]], stuck: Callable[[], str]) -> web.Application:
    """The web application.

    Args:
        not_ready: what is waited for; empty when ready.
        stuck: why no progress is made; "" when there is progress.
    """

    async def healthz(_request: web.Request) -> web.Response:
        problem = stuck()
        if problem:
            return web.Response(status=503, text=f"no progress: {problem}\n")
        return web.Response(text="ok\n")

    async def readyz(_request: web.Request) -> web.Response:
        waiting = not_ready()
        if waiting:
            return web.Response(status=503, text=f"not in sync: {', '.join(waiting)}\n")
        return web.Response(text="ok\n")

    async def serve_metrics(_request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", serve_metrics)
    return app


def lacking(heard: Mapping[str, tuple[bool, float | None]], now: float, never_stale: Collection[str] = ()) -> list[str]:
    """Kinds of objects that the snapshot lacks, each with the reason where it was there once.

    Args:
        heard: for each kind whether it was ever complete, and when the API server last showed that it is up to date.
        now: of the same clock.
        never_stale: kinds that only have to be complete once.
    """
    found = []
    for kind, (complete, last) in heard.items():
        if not complete:
            found.append(kind)
        elif kind not in never_stale and last is not None and now - last > STALE:
            found.append(f"{kind} (nothing heard for {now - last:.0f} s)")
    return found


class Liveness:
    """Whether the round loop makes progress.

    The loop is well while it waits for work. It is stuck when one turn takes too long, or when no round succeeds for so
    long that the search for the pods at fault (quarantine.py) must have ended.
    """

    def __init__(self, round_timeout: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._turn_bound, self._success_bound = 5 * round_timeout, 20 * round_timeout
        self._clock = clock
        self._turn: float | None = None
        self._owed: float | None = None

    def began(self) -> None:
        """There is work, and a turn begins."""
        self._turn = self._clock()
        if self._owed is None:
            self._owed = self._turn

    def ended(self, *, success: bool) -> None:
        """The turn is over; ``success`` where a round was concluded."""
        self._turn = None
        if success:
            self._owed = None

    def problem(self) -> str:
        """Why there is no progress, "" where there is."""
        now = self._clock()
        if self._turn is not None and now - self._turn > self._turn_bound:
            return f"one round takes {now - self._turn:.0f} s"
        if self._owed is not None and now - self._owed > self._success_bound:
            return f"no round succeeded for {now - self._owed:.0f} s"
        return ""


async def watch_event_loop(metrics: Metrics) -> None:
    """Measures how late the loop wakes a sleeper, and how much of that was our own work."""
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
