"""Pods that arrive whatever becomes of the API server meanwhile, and the wait until they are bound."""

import asyncio
from collections.abc import Iterable
from typing import Any

from support.cluster_scenario import ClusterScenario
from support.operator import until
from support.retries import insist


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
