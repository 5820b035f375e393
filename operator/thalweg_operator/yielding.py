"""Long work in bursts, with a turn of the event loop after each of them, so that other tasks do not wait.

A burst ends by time, too: a lease is renewed and probes are answered in time, whatever a single part costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import islice
from time import perf_counter
from typing import TypeVar

_T = TypeVar("_T")
#: Parts of the work between two turns of the event loop, and seconds, at most.
BURST, BURST_SECONDS = 200, 0.01


class Burst:
    """Counts and times the parts of one burst after the other."""

    def __init__(self) -> None:
        self._count, self._since = 0, perf_counter()

    async def part_done(self) -> None:
        """Gives the event loop a turn if the burst has lasted long enough."""
        self._count += 1
        if self._count >= BURST or perf_counter() - self._since >= BURST_SECONDS:
            await asyncio.sleep(0)
            self._count, self._since = 0, perf_counter()


async def yielding(items: Iterable[_T]) -> AsyncIterator[_T]:
    """The items, with a turn of the event loop after each burst."""
    burst = Burst()
    for item in items:
        yield item
        await burst.part_done()


async def bursts(items: Iterable[_T]) -> AsyncIterator[Sequence[_T]]:
    """The items in bursts, with a turn of the event loop between two of them.

    A burst is as long as the one before makes likely to last ``BURST_SECONDS``.
    """
    remaining, size = iter(items), BURST
    while burst := list(islice(remaining, size)):
        since = perf_counter()
        yield burst
        took = max(perf_counter() - since, 1e-6)
        size = max(1, min(BURST, round(len(burst) * BURST_SECONDS / took)))
        await asyncio.sleep(0)
