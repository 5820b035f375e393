"""In which order pods are nominated that a plan puts in waves.

The next wave of a chain begins once each pod of the wave before has passed, is gone or was given up, or the wave is
overdue. Chains of one plan do not wait for each other. A chain of a later plan waits for those chains of earlier plans
that a rule links with it (``linked_chains.py``): what it counts on may still be on its way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import Pod
from flowcore.model.selectors import Labels
from thalweg_operator.reservations.steering.records.linked_chains import earlier_chains

#: Chain and wave (flowcore/rules/topology/round_constraints/waves.py); 0 and 0: at any time.
WavePosition: TypeAlias = tuple[int, int]
UNORDERED: WavePosition = (0, 0)
#: Seconds after which a wave is overdue: since kube-scheduler last asked, and at most.
_WAVE_SECONDS = 2.0
_LONGEST_WAVE = 20.0


@dataclass(slots=True, eq=False)
class _Chain:
    """Waves to come, and keys of pods that have not passed: of the wave under way, and of overdue ones.

    Attributes:
        signatures: of all its pods.
        waits_for: chains that come before it.
        followers: chains that it comes before.
    """

    waves: deque[dict[str, Pod]]
    signatures: frozenset[PodSignature]
    waits_for: set[_Chain] = field(default_factory=set)
    followers: list[_Chain] = field(default_factory=list)
    under_way: set[str] = field(default_factory=set)
    overdue: set[str] = field(default_factory=set)
    begun: float = 0.0


#: The wave of a pod: one that is to come, or the chain whose wave has begun and whether it is overdue; None: no wave.
_Seat: TypeAlias = dict[str, Pod] | tuple[_Chain, bool] | None


class WaveQueue:
    """The waves of all chains."""

    def __init__(self) -> None:
        #: Chains that others may wait for, in the order of their plans.
        self._unfinished: dict[_Chain, None] = {}
        #: The wave of each pod whose wave is to come.
        self._waves: dict[str, dict[str, Pod]] = {}
        #: The chain of each pod whose wave has begun, until the pod passes.
        self._chains: dict[str, _Chain] = {}
        #: Chains whose next wave may begin.
        self._due: deque[_Chain] = deque()

    def add(self, planned: Iterable[tuple[Pod, WavePosition]], namespaces: Mapping[str, Labels]) -> None:
        """Takes the pods of one plan.

        Args:
            planned: pods with their waves.
            namespaces: labels of the namespaces.
        """
        waves_by_chain: dict[int, dict[int, dict[str, Pod]]] = {}
        for pod, (chain_number, wave) in planned:
            members = waves_by_chain.setdefault(chain_number, {}).setdefault(wave, {})
            members[pod.key] = pod
            self._waves[pod.key] = members
        chains = [
            _Chain(
                deque(waves[wave] for wave in sorted(waves)),
                frozenset(pod.signature for members in waves.values() for pod in members.values()),
            )
            for waves in waves_by_chain.values()
        ]
        earlier = list(self._unfinished)
        numbers = earlier_chains(
            [chain.signatures for chain in chains], [chain.signatures for chain in earlier], namespaces
        )
        for chain, before in zip(chains, numbers, strict=True):
            chain.waits_for = {earlier[number] for number in before}
            for first in chain.waits_for:
                first.followers.append(chain)
            if not chain.waits_for:
                self._due.append(chain)
        self._unfinished.update(dict.fromkeys(chains))

    def passed(self, key: str) -> None:
        """The next wave does not wait for this pod any more."""
        chain = self._chains.pop(key, None)
        if chain is None:
            return
        chain.overdue.discard(key)
        if key in chain.under_way:
            chain.under_way.remove(key)
            if not chain.under_way:
                self._due.append(chain)

    def others_under_way(self, key: str) -> bool:
        """Whether other pods of the same chain, of this wave or of earlier ones, have not passed either."""
        chain = self._chains.get(key)
        return chain is not None and len(chain.under_way) + len(chain.overdue) > 1

    def exchange(self, pod: Pod, partner: Pod) -> None:
        """Two pods get each other's waves, to come or begun; a pod of no wave has none to give."""
        first, second = self._take_out(pod.key), self._take_out(partner.key)
        self._put_in(partner, first)
        self._put_in(pod, second)

    def _take_out(self, key: str) -> _Seat:
        members = self._waves.pop(key, None)
        if members is not None:
            del members[key]
            return members
        chain = self._chains.pop(key, None)
        if chain is None:
            return None
        is_overdue = key in chain.overdue
        (chain.overdue if is_overdue else chain.under_way).discard(key)
        return chain, is_overdue

    def _put_in(self, pod: Pod, seat: _Seat) -> None:
        match seat:
            case dict():
                seat[pod.key] = pod
                self._waves[pod.key] = seat
            case (chain, is_overdue):
                (chain.overdue if is_overdue else chain.under_way).add(pod.key)
                self._chains[pod.key] = chain

    def end_overdue(self, now: float, last_question: float) -> None:
        """Ends waves that are overdue: later waves do not wait for their pods any more.

        Args:
            now: the time, in seconds.
            last_question: when kube-scheduler last asked about any planned pod: while it asks, it comes to them all.
        """
        for chain in dict.fromkeys(self._chains.values()):
            is_overdue = now - max(chain.begun, last_question) >= _WAVE_SECONDS or now - chain.begun >= _LONGEST_WAVE
            if chain.under_way and is_overdue:
                chain.overdue |= chain.under_way
                chain.under_way.clear()
                self._due.append(chain)

    def begin(self, now: float, is_queued: Callable[[Pod], bool]) -> list[Pod]:
        """Pods to nominate now, in their order.

        Args:
            now: the time, in seconds.
            is_queued: whether a pod is still to be nominated.
        """
        begun: list[Pod] = []
        while self._due:
            chain = self._due.popleft()
            while chain.waves and not chain.under_way:
                wave = chain.waves.popleft()
                # A pod that was given up and planned again is in a later wave.
                keys = [key for key in wave if self._waves.get(key) is wave]
                for key in keys:
                    del self._waves[key]
                pods = [wave[key] for key in keys if is_queued(wave[key])]
                chain.under_way, chain.begun = {pod.key for pod in pods}, now
                self._chains.update(dict.fromkeys(chain.under_way, chain))
                begun += pods
            if not chain.under_way and chain in self._unfinished:
                del self._unfinished[chain]
                for later in chain.followers:
                    later.waits_for.remove(chain)
                    if not later.waits_for:
                        self._due.append(later)
        return begun
