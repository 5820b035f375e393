"""Logs repeated failures in few lines.

A cause is logged when it begins, then at most every 30 s with the number of failures since, and once when it ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

_log = structlog.get_logger()
#: Seconds between two lines about one cause.
_EVERY = 30.0
#: Seconds after which a transient cause is logged.
_GRACE = 5.0


@dataclass(slots=True)
class _Cause:
    since: float
    logged: float = float("-inf")
    failures: int = 0


class Outages:
    """Log of failures. The names of topics and causes come from the code, so their number is small."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._causes: dict[tuple[str, str], _Cause] = {}
        #: Failing topics, and whether the failure was logged.
        self._failing: dict[str, bool] = {}

    def failed(self, topic: str, cause: str, problem: str, *, transient: bool = False) -> None:
        """Records a failure.

        Args:
            topic: name of what failed, for example a kind of object.
            cause: for example the HTTP status; a new cause is logged at once.
            problem: a sentence that says what is wrong.
            transient: whether the cause usually ends within seconds, for example a 429 while the API server starts to
                serve a kind.
        """
        now = self._clock()
        known = self._causes.setdefault((topic, cause), _Cause(now))
        if topic not in self._failing:
            self._failing[topic] = False
            known.since = now
        known.failures += 1
        if now - known.logged >= _EVERY and (not transient or now - known.since >= _GRACE):
            # A 403 lasts until the RBAC rules change.
            log = _log.error if cause == "403" else _log.warning
            log("failing", what=topic, cause=cause, problem=problem, failures=known.failures)
            known.logged, known.failures, self._failing[topic] = now, 0, True

    def recovered(self, topic: str) -> None:
        """Records a success. A new failure within 30 s of the last line is logged with the next line."""
        if self._failing.pop(topic, False):
            _log.info("recovered", what=topic)
