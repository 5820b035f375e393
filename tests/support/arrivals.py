"""Pods that arrive whatever becomes of the API server meanwhile, and the wait until they are bound."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from support.cluster_scenario import ClusterScenario
from support.operator import until
from thalweg_controlplane import ApiError


async def insist(action: Callable[[], Awaitable[Any]]) -> None:
    """Does it, also while the API server is away now and then; 409 and 404 mean that an earlier try got through."""
    while True:
        try:
            await action()
        except ApiError as error:
            if error.status in (409, 404):
                return
            if error.status not in (0, 429, 500, 503, 504, 401, 403):
                raise
            await asyncio.sleep(0.05)
        else:
            return


async def create_all(scene: ClusterScenario, pods: Iterable[dict[str, Any]], concurrency: int = 8) -> None:
    """Creates pods in order and steadily, through any trouble."""
    gate = asyncio.Semaphore(concurrency)

    async def one(pod: dict[str, Any]) -> None:
        async with gate:
            await insist(lambda: scene.api.create(pod))

    await asyncio.gather(*(one(pod) for pod in pods))


async def some_bound(scene: ClusterScenario, count: int, within: float = 60.0) -> None:
    """Returns as soon as the API server has shown so many pods bound."""
    await until(
        lambda: len(scene.history.nodes_of) >= count,
        within,
        lambda: f"{count} pods to be bound; {len(scene.history.nodes_of)} are",
    )


async def no_reservations_left(scene: ClusterScenario) -> None:
    """Every reservation ends: confirmed, or given back."""

    async def none() -> bool:
        return (await scene.operator.metrics())["thalweg_reservations"] == 0

    await until(none, 30, lambda: "all reservations to end")
