"""What the load benchmarks have in common: creating pods, waiting for their bindings, what a watch saw of it."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterable
from typing import Any

from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.client.objects import Manifest

from harness import plane
from harness.pod_watch import PodWatch, Sighting
from harness.schedulers import Scheduler

_POLL_SECONDS = 0.02


async def create(api: Api, pods: list[Manifest]) -> float:
    """Creates them; seconds that it took."""
    begun = time.monotonic()
    await plane.create(api, pods)
    return time.monotonic() - begun


async def until_bound(
    control_plane: ControlPlane, scheduler: Scheduler, watch: PodWatch, wanted: int, patience: float
) -> None:
    """Returns when all are bound, or when nothing was bound for so long."""
    begun = time.monotonic()
    while watch.bound < wanted:
        scheduler.check()
        control_plane.check()
        if time.monotonic() - max(begun, watch.last) > patience:
            plane.say(f"{scheduler.name}: {watch.bound} of {wanted} bound, and nothing for {patience:.0f} s: given up")
            return
        await asyncio.sleep(_POLL_SECONDS)


def latencies(seen: Iterable[Sighting], since: float | None) -> list[float]:
    """Seconds to each binding, from a moment or, without one, from the pod's creation."""
    return [each.bound - (each.added if since is None else since) for each in seen if each.bound is not None]


def percentile(values: list[float], at: int) -> float | None:
    """Of seconds, in ms."""
    if len(values) < 2:
        return None
    return 1000 * statistics.quantiles(values, n=100, method="inclusive")[at - 1]


def times(seen: Iterable[Sighting], ready: float | None) -> dict[str, Any]:
    """How many pods were bound, in what time, how many a second, and how long each waited, in ms.

    Args:
        ready: when the scheduler began, if the pods were there before; None: pods came while it ran.
    """
    pods = list(seen)
    bound = sorted(each.bound for each in pods if each.bound is not None)
    begun = min(each.added for each in pods) if ready is None else ready
    seconds = bound[-1] - min(begun, bound[0]) if bound else 0.0
    waited = latencies(pods, ready)
    return {
        "bound": len(bound),
        "seconds": seconds,
        "pods_per_second": len(bound) / seconds if seconds else 0.0,
        "p50_ms": percentile(waited, 50),
        "p99_ms": percentile(waited, 99),
    }
