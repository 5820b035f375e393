"""Exponential back-off for failed requests. Pure: the caller counts the failures and keeps the clock."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

#: Limit of the exponent, against overflow.
_MOST_DOUBLINGS = 32


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with jitter: min(longest, first * 2^(failures - 1)) * (1 - jitter * draw()).

    Attributes:
        first: pause in seconds after the first failure.
        longest: longest pause in seconds.
        jitter: random share of each pause, 0 to 1. It spreads the retries of clients that failed at the same time.
        draw: returns a random number in [0, 1).
    """

    first: float
    longest: float
    jitter: float = 0.5
    draw: Callable[[], float] = random.random

    def pause(self, failures: int, at_least: float = 0.0) -> float:
        """Seconds to wait before the next attempt.

        Args:
            failures: number of consecutive failures, at least 1.
            at_least: seconds that the server asked for (Retry-After); they may exceed ``longest``.
        """
        doubled = self.first * 2.0 ** min(max(0, failures - 1), _MOST_DOUBLINGS)
        return max(at_least, min(self.longest, doubled) * (1.0 - self.jitter * self.draw()))
