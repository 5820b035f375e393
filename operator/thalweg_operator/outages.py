"""Failures that repeat, in few log lines.

A cause is logged when it begins, then at most every 30 s with the number of failures since, and once when it is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

_log = structlog.get_logger()
#: Seconds between two lines about one cause.
_EVERY = 30.0
#: Seconds that a cause which mostly passes by itself is not worth a line.
_GRACE = 5.0


@dataclass(slots=True)
class _Cause:
    since: float
    logged: float = float("-inf")
    failures: int = 0


class Outages:
    """See the module. Topics and causes are named by our own code, so their number is small."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._causes: dict[tuple[str, str], _Cause] = {}
        #: Topics that fail now, and whether that was logged.
        self._failing: dict[str, bool] = {}

    def failed(self, topic: str, cause: str, problem: str, *, passing: bool = False) -> None:
        """Something failed once more.

        Args:
            topic: what failed, for example a kind of object.
            cause: for example the HTTP status: another one is logged at once.
            problem: what is wrong, in a sentence.
            passing: it mostly ends within seconds, as a 429 does while the API server starts to serve a kind.
        """
        now = self._clock()
        known = self._causes.setdefault((topic, cause), _Cause(now))
        if topic not in self._failing:
            self._failing[topic] = False
            known.since = now
        known.failures += 1
        if now - known.logged >= _EVERY and (not passing or now - known.since >= _GRACE):
            # Nothing but other rights helps against a 403.
            log = _log.error if cause == "403" else _log.warning
            log("failing", what=topic, cause=cause, problem=problem, failures=known.failures)
            known.logged, known.failures, self._failing[topic] = now, 0, True

    def over(self, topic: str) -> None:
        """It works. What fails again within 30 s of its last line waits for the next one."""
        if self._failing.pop(topic, False):
            _log.info("works again", what=topic)
