"""Metrics of waiting pods: how many wait, and for how long, by the code of their reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from flowcore.model.pods import Pod
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations.waiting_codes import ALL_CODES, AWAITING_TURN


class WaitingMetrics:
    """What the last round left pending."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        """``clock``: seconds of a monotonic clock."""
        self._clock = clock
        #: Code of each waiting pod by UID, and since when it has this code.
        self._waiting: dict[str, tuple[str, float]] = {}
        self._oldest: dict[str, float] = {}
        #: Number of pods by code; others have none.
        self._counts = Counter[str]()
        self._gauges = {code: metrics.waiting.labels(code) for code in ALL_CODES}
        for code in ALL_CODES:
            metrics.longest_wait.labels(code).set_function(partial(self._longest, code))

    def round_ended(self, waiting: Iterable[tuple[Pod, str]]) -> None:
        """Takes over all pods that wait now, each with its code. One that waits for another turn keeps what it had."""
        now, before = self._clock(), self._waiting
        self._waiting, self._oldest = {}, {}
        for pod, code in waiting:
            known = before.get(pod.uid)
            if code == AWAITING_TURN and known is not None:
                code = known[0]  # noqa: PLW2901
            since = now if known is None or known[0] != code else known[1]
            self._waiting[pod.uid] = (code, since)
            self._oldest[code] = min(since, self._oldest.get(code, since))
        counts = Counter(code for code, _ in self._waiting.values())
        for code in counts.keys() | self._counts.keys():
            self._gauges[code].set(counts[code])
        self._counts = counts

    def _longest(self, code: str) -> float:
        since = self._oldest.get(code)
        return 0.0 if since is None else self._clock() - since
