"""/healthz, /readyz and /metrics, and the watch on the event loop itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from thalweg_operator.metrics import Metrics

_SLEEP = 0.02


def application(metrics: Metrics, not_ready: Callable[[], list[str]]) -> web.Application:
    """The web application.

    Args:
        not_ready: what is still waited for; empty when ready.
    """

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_request: web.Request) -> web.Response:
        waiting = not_ready()
        if waiting:
            return web.Response(status=503, text=f"not in sync yet: {', '.join(waiting)}\n")
        return web.Response(text="ok\n")

    async def serve_metrics(_request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", serve_metrics)
    return app


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
