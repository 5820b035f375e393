"""Pauses of pods that could not go where they were planned, by a monotonic clock: the wall clock may be set."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from flowcore.model.pods import Pod

#: Seconds that a pod rests at most whose binding was refused.
_LONGEST_BACKOFF = 60.0
#: Seconds that a pod rests where kube-scheduler may be placing another one just now.
_CONTENDED_REST = 0.25
#: Seconds that a pod and a node that kube-scheduler refused it rest at most.
_LONGEST_REST = 300.0


@dataclass(slots=True)
class _Backoff:
    uid: str
    until: float
    tries: int


@dataclass(slots=True)
class _Refusals:
    """Nodes that kube-scheduler refused for a pod: until when the pair rests, the generation then, how often."""

    uid: str
    nodes: dict[str, tuple[float, int, int]]


class RestingPods:
    """See the module.

    Args:
        clock: seconds; nobody sets it.
        changed_since: whether a node changed, came or went after a generation of the state.
    """

    def __init__(self, clock: Callable[[], float], changed_since: Callable[[str, int], bool]) -> None:
        self._clock, self._changed_since = clock, changed_since
        self._backoffs: dict[str, _Backoff] = {}
        self._refusals: dict[str, _Refusals] = {}

    def refused(self, pod: Pod) -> None:
        """A pod could not be bound where it was planned."""
        before = self._backoffs.get(pod.key)
        tries = before.tries + 1 if before is not None and before.uid == pod.uid else 1
        self._backoffs[pod.key] = _Backoff(pod.uid, self._clock() + _rest(tries - 1, _LONGEST_BACKOFF), tries)

    def contended(self, pod: Pod) -> None:
        """kube-scheduler may be placing others where the pod was to go."""
        self._backoffs[pod.key] = _Backoff(pod.uid, self._clock() + _CONTENDED_REST, 0)

    def rejected(self, pod: Pod, node: str, generation: int) -> None:
        """kube-scheduler's own filters refuse a node for a pod, in this generation of the state."""
        known = self._refusals.get(pod.key)
        if known is None or known.uid != pod.uid:
            known = self._refusals[pod.key] = _Refusals(pod.uid, {})
        tries = known.nodes.get(node, (0.0, 0, 0))[2] + 1
        known.nodes[node] = (self._clock() + _rest(tries, _LONGEST_REST), generation, tries)

    def rests(self, pod: Pod) -> bool:
        """Whether it is not to be planned now."""
        backoff = self._backoffs.get(pod.key)
        return backoff is not None and backoff.uid == pod.uid and backoff.until > self._clock()

    def refusing(self, pod: Pod) -> list[str]:
        """Nodes that this pod is not to be planned for now: refused not long ago, and no different since."""
        known = self._refusals.get(pod.key)
        if known is None or known.uid != pod.uid:
            return []
        now = self._clock()
        # A pair that is refused again soon after its rest goes on where it was.
        known.nodes = {node: each for node, each in known.nodes.items() if each[0] + _LONGEST_REST > now}
        return sorted(
            node
            for node, (until, generation, _) in known.nodes.items()
            if until > now and not self._changed_since(node, generation)
        )

    def ends(self, after: float) -> Iterator[float]:
        """When pauses end that end later than that."""
        for backoff in self._backoffs.values():
            if backoff.until > after:
                yield backoff.until
        for refusals in self._refusals.values():
            for until, *_ in refusals.nodes.values():
                if until > after:
                    yield until

    def prune(self, waiting: Collection[str]) -> None:
        """Drops what is known of pods that wait no more."""
        self._refusals = {key: each for key, each in self._refusals.items() if key in waiting}
        self._backoffs = {key: each for key, each in self._backoffs.items() if key in waiting}


def _rest(tries: int, most: float) -> float:
    """Seconds, twice as many with each try."""
    return min(most, 2.0 ** min(tries, 16))
