"""How long to wait before a failed request is tried again. Pure: the caller counts the failures and keeps the clock."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

#: Doubling further than this changes nothing and could overflow.
_MOST_DOUBLINGS = 32


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with jitter.

    Attributes:
        first: seconds after the first failure.
        longest: seconds that no pause of its own exceeds.
        jitter: share of each pause that is random, 0 to 1. Clients that failed together do not come back together.
        draw: a random number from 0 up to 1.
    """

    first: float
    longest: float
    jitter: float = 0.5
    draw: Callable[[], float] = random.random

    def pause(self, failures: int, at_least: float = 0.0) -> float:
        """Seconds to wait after so many failures in a row, of which there is at least one.

        Args:
            at_least: seconds that the server asked for (Retry-After); they may exceed ``longest``.
        """
        doubled = self.first * 2.0 ** min(max(0, failures - 1), _MOST_DOUBLINGS)
        return max(at_least, min(self.longest, doubled) * (1.0 - self.jitter * self.draw()))
