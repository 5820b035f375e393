"""The verdict cache with a clock: how long a round waited for filters. The core itself has no clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from numpy.typing import NDArray

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.rules.filters.registry import Filter
from flowcore.rules.filters.rejection import Rejection
from flowcore.rules.verdicts import VerdictCache
from flowcore.rules.verdicts.invalidation import Event


class TimedVerdictCache(VerdictCache):
    """A verdict cache that counts the seconds that its answers take."""

    def __init__(self) -> None:
        super().__init__()
        self._seconds = 0.0

    def run_filter(
        self, which: Filter, pod_class: PodClass, signature: PodSignature, snapshot: Snapshot
    ) -> tuple[Rejection, ...]:
        """Runs or looks up a filter, and counts the seconds."""
        started = time.perf_counter()
        try:
            return super().run_filter(which, pod_class, signature, snapshot)
        finally:
            self._seconds += time.perf_counter() - started

    def values(
        self,
        owner: str,
        key: Hashable,
        stale_when: Iterable[Event],
        snapshot: Snapshot,
        compute: Callable[[Snapshot, Int64s | None], NDArray[Any]],
    ) -> NDArray[Any]:
        """Looks up or computes an array, and counts the seconds."""
        started = time.perf_counter()
        try:
            return super().values(owner, key, stale_when, snapshot, compute)
        finally:
            self._seconds += time.perf_counter() - started

    def take_seconds(self) -> float:
        """Seconds spent since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds
