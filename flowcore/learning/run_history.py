"""Which pods ran where and when, and with whom.

The history is told of all pods that exist, now and then. What it learnt from a pod it keeps after the pod is gone, up
to a number of pods of each kind. It is lost with its process, and begins again with the finished pods that still exist.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from flowcore.learning.estimates import Estimates, Observation, estimates

#: Finished pods of each kind that are learnt from, the newest.
_MOST_OBSERVATIONS = 2_000


class Run(msgspec.Struct, frozen=True, gc=False):
    """A pod of some kind on a node.

    Attributes:
        uid: of the pod.
        kind: position of its kind.
        machine: kind of machine of the node.
        work: what it does: pods of the same work take equally long on equal nodes.
        start, end: seconds since the epoch; an end of 0: it runs.
        done: whether it did all that it was to do.
    """

    uid: str
    node: str
    kind: int
    machine: str
    work: str
    start: float
    end: float = 0.0
    done: bool = False


class RunHistory:
    """See the module."""

    def __init__(self, kinds: int) -> None:
        """``kinds``: how many kinds there are."""
        self._kinds = kinds
        self._by_node: dict[str, dict[str, Run]] = {}
        self._observations: list[deque[Observation]] = [deque(maxlen=_MOST_OBSERVATIONS) for _ in range(kinds)]
        self._learnt_from: set[str] = set()

    def update(self, runs: Sequence[Run], now: float) -> None:
        """Takes all runs that are known now. One that is not among them any more has ended.

        Args:
            now: seconds since the epoch.
        """
        known = {run.uid for run in runs}
        for on_node in self._by_node.values():
            for uid, run in on_node.items():
                if not run.end and uid not in known:
                    on_node[uid] = msgspec.structs.replace(run, end=max(now, run.start))
        for run in runs:
            self._by_node.setdefault(run.node, {})[run.uid] = run
        for run in sorted((run for run in runs if run.done), key=lambda run: (run.end, run.uid)):
            if run.uid not in self._learnt_from and run.end > run.start:
                beside = self._beside(run, self._by_node[run.node].values(), now)
                self._observations[run.kind].append(
                    Observation(run.work, run.machine, beside, float(np.log(run.end - run.start)))
                )
        self._learnt_from = {run.uid for run in runs if run.done}
        self._forget(known)

    @property
    def learnt_from(self) -> int:
        """How many finished pods are learnt from."""
        return sum(map(len, self._observations))

    @property
    def runs(self) -> int:
        """How many runs are kept, to learn from them or from their neighbours."""
        return sum(map(len, self._by_node.values()))

    def observations(self, kind: int) -> tuple[Observation, ...]:
        """What is learnt from, of one kind."""
        return tuple(self._observations[kind])

    def estimates(self) -> tuple[Estimates, ...]:
        """What is known, of each kind."""
        return tuple(estimates(self.observations(kind), self._kinds) for kind in range(self._kinds))

    def _beside(self, run: Run, on_node: Iterable[Run], now: float) -> tuple[float, ...]:
        """How many pods of each kind ran beside it, on average over its time."""
        found = [0.0] * self._kinds
        for other in on_node:
            if other.uid != run.uid:
                both = min(other.end or now, run.end) - max(other.start, run.start)
                found[other.kind] += max(both, 0.0) / (run.end - run.start)
        return tuple(found)

    def _forget(self, known: set[str]) -> None:
        """Drops runs that ended before all those began that are still to be learnt from."""
        for node, on_node in list(self._by_node.items()):
            earliest = min((run.start for run in on_node.values() if not run.end), default=float("inf"))
            kept = {uid: run for uid, run in on_node.items() if not run.end or run.end > earliest or uid in known}
            if kept:
                self._by_node[node] = kept
            else:
                del self._by_node[node]
