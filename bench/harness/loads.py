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
from harness.extended import GATED, HELD, KUBE_SCHEDULER, STEERED
from harness.pod_watch import PodWatch, Sighting
from harness.schedulers import Scheduler
from harness.second_scheduler import SECOND

_POLL_SECONDS = 0.02
#: Seconds until pods that wait are taken for settled whatever the metrics say, and between two looks.
_SETTLED_SECONDS, _LOOK_SECONDS = 60.0, 0.5
#: Seconds that held pods are tried for before others come: they never rest.
_HELD_SECONDS = 5.0

#: Row with us while pods wait -> the row of kube-scheduler without an extender and with the same pods.
BESIDE_ALONE = {STEERED: "alone", GATED: "alone gated"}


def compared_with(scheduler: str, *, waiting: bool) -> str:
    """The row that a row is compared with: kube-scheduler alone, where pods wait with the same pods waiting.

    Held pods fit. Without an extender they would not wait, so they are compared with pods that fit nowhere. Pods of a
    second kube-scheduler wait in no queue of the first one, as those behind a gate.
    """
    if scheduler == SECOND:
        return BESIDE_ALONE[GATED]
    if not waiting or scheduler in (KUBE_SCHEDULER, *BESIDE_ALONE.values()):
        return KUBE_SCHEDULER
    return BESIDE_ALONE.get(scheduler, BESIDE_ALONE[STEERED])


async def until_waiting(scheduler: Scheduler, count: int, *, tells: bool) -> None:
    """Returns once kube-scheduler has put so many pods aside, and everybody has told them why.

    Args:
        tells: whether Thalweg tells them too.
    """
    if scheduler.name == HELD:
        await asyncio.sleep(_HELD_SECONDS)
        return
    deadline = time.monotonic() + _SETTLED_SECONDS
    while time.monotonic() < deadline:
        samples = await scheduler.metrics()
        aside = sum(samples.get(f"scheduler_pending_pods {queue}", 0.0) for queue in ("unschedulable", "gated"))
        told = samples.get("thalweg_reasons_written_total", 0.0) if tells else count
        if min(aside, told) >= count:
            return
        await asyncio.sleep(_LOOK_SECONDS)
    plane.say(f"{scheduler.name}: the {count} pods that wait have not settled in {_SETTLED_SECONDS:.0f} s")


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
