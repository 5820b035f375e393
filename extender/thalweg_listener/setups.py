"""Connections without a request yet, and how many new ones an address may open: who is given up first."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

#: Addresses whose new connections are counted; beyond that the least recent ones are forgotten.
_MOST_SOURCES: Final = 4096


class SetupStage(IntEnum):
    """How far a connection is."""

    SILENT = 0
    """It has sent nothing."""
    HANDSHAKE = 1
    """It has sent something, and the TLS handshake is not over."""
    HEAD = 2
    """The head of its first request is not complete."""


@dataclass(eq=False, slots=True)
class Setup:
    """One connection.

    Attributes:
        source: address of the other side.
        end: closes the connection.
        timer: ends it when its stage takes too long.
        ended: the listener has given it up.
    """

    source: str
    end: Callable[[], None]
    stage: SetupStage = SetupStage.SILENT
    timer: asyncio.TimerHandle | None = None
    ended: bool = False


class Setups:
    """All connections without a request yet."""

    def __init__(self) -> None:
        #: In each stage the oldest first.
        self._stages: dict[SetupStage, dict[Setup, None]] = {stage: {} for stage in SetupStage}
        #: Of each address, the oldest first.
        self._silent: dict[str, dict[Setup, None]] = {}

    def count(self, stage: SetupStage) -> int:
        """How many there are in this stage."""
        return len(self._stages[stage])

    def put(self, setup: Setup, stage: SetupStage, timer: asyncio.TimerHandle | None = None) -> None:
        """The connection is in this stage from now on."""
        self.remove(setup)
        setup.stage, setup.timer = stage, timer
        self._stages[stage][setup] = None
        if stage is SetupStage.SILENT:
            self._silent.setdefault(setup.source, {})[setup] = None

    def remove(self, setup: Setup) -> None:
        """The connection has had a request, or is closed."""
        if setup.timer is not None:
            setup.timer.cancel()
            setup.timer = None
        self._stages[setup.stage].pop(setup, None)
        silent = self._silent.get(setup.source)
        if silent is not None:
            silent.pop(setup, None)
            if not silent:
                del self._silent[setup.source]

    def silent_of(self, source: str) -> list[Setup]:
        """The silent connections of an address, the oldest first."""
        return list(self._silent.get(source, ()))

    def all(self) -> list[Setup]:
        """All of them."""
        return [setup for setups in self._stages.values() for setup in setups]

    def first_to_end(self) -> Setup | None:
        """The connection to give up for a new one; None: there is none.

        A silent one if there is one. It is the oldest of the address that has most of them.
        """
        if self._silent:
            most: dict[Setup, None] = max(self._silent.values(), key=len)  # the address that came first, of equals
            return next(iter(most))
        started = [*self._stages[SetupStage.HANDSHAKE], *self._stages[SetupStage.HEAD]]
        if not started:
            return None
        sources = Counter(setup.source for setup in started)
        return max(started, key=lambda setup: sources[setup.source])  # the first of equals


class Rates:
    """New connections of each address (token buckets).

    Args:
        rate: new tokens a second.
        burst: tokens of an address that was not seen lately.
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        #: Tokens, and when they were counted; the least recent address first.
        self._tokens: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, source: str, now: float) -> bool:
        """Whether the address may have one more connection at this time, in seconds of a monotonic clock."""
        tokens, counted = self._tokens.get(source, (float(self._burst), now))
        tokens = min(float(self._burst), tokens + (now - counted) * self._rate)
        allowed = tokens >= 1
        self._tokens[source] = (tokens - 1 if allowed else tokens, now)
        self._tokens.move_to_end(source)
        if len(self._tokens) > _MOST_SOURCES:
            self._tokens.popitem(last=False)
        return allowed
