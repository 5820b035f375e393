"""Ends what is under way when the operator stops."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

from thalweg_operator.reservations.ledger.ledger import Ledger

#: Seconds that kube-scheduler may take to bind the pods that were let through last.
_PASSING_SECONDS: Final = 2.0


class _Writer(Protocol):
    @property
    def unanswered(self) -> bool: ...

    async def drain(self) -> None: ...


async def drain(ledger: Ledger, writers: Sequence[_Writer], seconds: float) -> str:
    """Waits for writes under way; returns what may still be carried out, or "" for nothing.

    Args:
        seconds: that the writes may take.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            for writer in writers:
                await writer.drain()
    # The next leader does not know of the pods that kube-scheduler is binding until it sees them bound.
    in_flight = ledger.in_flight
    with suppress(TimeoutError):
        async with asyncio.timeout(_PASSING_SECONDS):
            while in_flight.is_passing:  # noqa: ASYNC110 - the watch shows it
                await asyncio.sleep(0.01)
    if any(each.unanswered for each in writers):  # all of them: one may have begun while others ended
        return "a binding, nomination or eviction was not answered"
    return "kube-scheduler may be binding a pod that it was let through with" if in_flight.is_passing else ""
