"""Iterates over long lists and gives the event loop a turn after each burst, so that other tasks do not wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import islice
from typing import TypeVar

_T = TypeVar("_T")
#: Items handled between two turns of the event loop.
BURST = 200


async def yielding(items: Iterable[_T]) -> AsyncIterator[_T]:
    """The items, with a turn of the event loop after each burst."""
    for count, item in enumerate(items):
        if count % BURST == BURST - 1:
            await asyncio.sleep(0)
        yield item


async def bursts(items: Iterable[_T]) -> AsyncIterator[Sequence[_T]]:
    """The items in bursts, with a turn of the event loop between two of them."""
    remaining = iter(items)
    burst = list(islice(remaining, BURST))
    while burst:
        yield burst
        burst = list(islice(remaining, BURST))
        if burst:
            await asyncio.sleep(0)
