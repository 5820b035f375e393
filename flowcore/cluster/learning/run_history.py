"""Which pods ran where, when, and beside which others.

The history reads all existing pods now and then. What it learnt from a pod it keeps after the pod is gone, up
to a number of pods of each kind. It can be told what another process learnt before (saved_learning.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from heapq import nlargest

import msgspec
import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.learning.estimates import Estimates, Observation, estimates

_Float64s = NDArray[np.float64]

#: Finished pods of each kind that are learnt from, the newest.
_MOST_OBSERVATIONS = 2_000
#: Runs of each node whose pods are gone that are kept as neighbours, the newest.
_MOST_GONE = 1_000


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
    """Runs of pods by kind, as far back as it is kept."""

    def __init__(self, kinds: int) -> None:
        """``kinds``: how many kinds there are."""
        self._kinds = kinds
        self._by_node: dict[str, dict[str, Run]] = {}
        self._observations: list[deque[Observation]] = [deque(maxlen=_MOST_OBSERVATIONS) for _ in range(kinds)]
        self._learnt_from: set[str] = set()
        #: When it last learnt anything, and until when another process did.
        self._learnt_at = self._restored_until = 0.0

    @property
    def learnt_at(self) -> float:
        """When it last learnt anything, seconds since the epoch; 0: never."""
        return self._learnt_at

    def restore(self, saved: Sequence[Sequence[Observation]], until: float) -> None:
        """Takes over what another process learnt.

        Args:
            saved: of each kind, the oldest first.
            until: pods that ended later are not among them, seconds since the epoch.
        """
        for own, before in zip(self._observations, saved, strict=True):
            later = [observation for observation in own if observation.end > until]
            own.clear()
            own.extend((*before, *later))
        self._restored_until = until
        self._learnt_at = max(self._learnt_at, until)

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
        new = [run for run in runs if run.done and run.uid not in self._learnt_from and run.end > self._restored_until]
        if new:
            self._learn(new, now)
            self._learnt_at = now
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

    def all_observations(self) -> tuple[tuple[Observation, ...], ...]:
        """The same of each kind."""
        return tuple(self.observations(kind) for kind in range(self._kinds))

    def estimates(self) -> tuple[Estimates, ...]:
        """What is known, of each kind."""
        return tuple(estimates(self.observations(kind), self._kinds) for kind in range(self._kinds))

    def _learn(self, done: Sequence[Run], now: float) -> None:
        """Learns from runs that are new, of each kind from the newest: older ones would only be replaced by them."""
        by_kind: list[list[Run]] = [[] for _ in range(self._kinds)]
        for run in done:
            if run.end > run.start:
                by_kind[run.kind].append(run)
        newest = [run for runs in by_kind for run in nlargest(_MOST_OBSERVATIONS, runs, key=_end)[::-1]]
        by_node: dict[str, list[Run]] = {}
        for run in newest:
            by_node.setdefault(run.node, []).append(run)
        beside: dict[str, tuple[float, ...]] = {}
        for node, learnt in by_node.items():
            rows = _beside(learnt, self._by_node[node].values(), self._kinds, now)
            beside |= {run.uid: tuple(row) for run, row in zip(learnt, rows.tolist(), strict=True)}
        for run in newest:
            seconds, end = float(np.log(run.end - run.start)), min(run.end, now)  # clocks of nodes may be ahead
            self._observations[run.kind].append(Observation(run.work, run.machine, beside[run.uid], seconds, end))

    def _forget(self, known: set[str]) -> None:
        """Drops runs beyond the limit, and runs that ended before any run began that is still to be learnt from."""
        for node, on_node in list(self._by_node.items()):
            earliest = min((run.start for run in on_node.values() if not run.end), default=float("inf"))
            kept = {uid: run for uid, run in on_node.items() if not run.end or uid in known}
            gone = [run for uid, run in on_node.items() if run.end > earliest and uid not in known]
            kept |= {run.uid: run for run in nlargest(_MOST_GONE, gone, key=_end)}
            if kept:
                self._by_node[node] = kept
            else:
                del self._by_node[node]


def _end(run: Run) -> tuple[float, str]:
    return run.end, run.uid


def _beside(learnt: Sequence[Run], on_node: Collection[Run], kinds: int, now: float) -> _Float64s:
    """float64[R, K]: how many pods of each kind ran beside each of R runs, on average over its time.

    The time that pods of a kind ran together up to a moment is found by look-ups in their sorted starts and ends. So
    the work grows with the number of runs on the node, not with its square.

    Args:
        learnt: the R runs.
        on_node: all runs on their node, these included.
    """
    # Times count from here, so that sums of many of them stay exact enough.
    origin = min(run.start for run in learnt)
    spans = np.array([(run.start, run.end) for run in learnt]) - origin
    of_kind: list[list[tuple[float, float]]] = [[] for _ in range(kinds)]
    for run in on_node:
        of_kind[run.kind].append((run.start, max(run.end or now, run.start)))
    together = np.zeros((len(learnt), kinds))
    for kind, ran in enumerate(of_kind):
        if ran:
            # What was before the first of the runs does not count.
            times = np.sort(np.maximum(np.array(ran) - origin, 0.0), axis=0)
            passed = _passed(spans, times[:, 0]) - _passed(spans, times[:, 1])
            together[:, kind] = passed[:, 1] - passed[:, 0]
    beside: _Float64s = together / (spans[:, 1:] - spans[:, :1])
    # A run is not its own neighbour.
    beside[np.arange(len(learnt)), [run.kind for run in learnt]] -= 1.0
    return np.maximum(beside, 0.0)


def _passed(moments: _Float64s, times: _Float64s) -> _Float64s:
    """float64, shaped as the moments: the sum of the seconds that passed since each of the sorted times before it."""
    before = np.searchsorted(times, moments)
    sums: _Float64s = np.concatenate(([0.0], np.cumsum(times)))
    return before * moments - sums[before]
