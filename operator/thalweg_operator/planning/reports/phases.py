"""Times of the phases of a round."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple


class RoundPhase(NamedTuple):
    """One phase.

    Attributes:
        start: seconds from the start of what the phase is a part of.
        seconds: how long it took.
    """

    name: str
    start: float
    seconds: float


class Stopwatch:
    """Measures phases that follow each other.

    Attributes:
        phases: those that ended, in order. One that ended with an exception is among them.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._started = clock()
        self.phases: list[RoundPhase] = []

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._started

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measures the block."""
        start = self.seconds
        try:
            yield
        finally:
            self.phases.append(RoundPhase(name, start, self.seconds - start))
