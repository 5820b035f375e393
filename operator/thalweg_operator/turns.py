"""Whose turn it is to be nominated, of pods that a plan puts in waves.

A chain's next wave begins once the one before is through, gone or given up, or late. Chains do not wait for each other;
those of a later plan wait for all of the earlier ones, since what that plan counts on may still be on its way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from flowcore.model.pods import Pod

#: Chain and wave (flowcore/rounds/waves.py); 0 and 0: whenever.
Turn: TypeAlias = tuple[int, int]
WHENEVER: Turn = (0, 0)
#: A wave that is not let through by then no longer holds up the next one: after kube-scheduler last asked, and at most.
_WAVE_SECONDS = 2.0
_LONGEST_WAVE = 20.0


@dataclass(slots=True, eq=False)
class _Chain:
    """Waves to come, and keys of the pods that the one under way still waits for."""

    waves: deque[dict[str, Pod]] = field(default_factory=deque)
    under_way: set[str] = field(default_factory=set)
    begun: float = 0.0


class Turns:
    """See the module.

    Args:
        waits: whether a pod is still to be nominated.
    """

    def __init__(self, waits: Callable[[Pod], bool]) -> None:
        self._waits = waits
        self._plans: deque[dict[_Chain, None]] = deque()
        #: Of pods whose turn is to come, their wave; of pods whose wave is under way, their chain.
        self._waiting: dict[str, dict[str, Pod]] = {}
        self._of: dict[str, _Chain] = {}
        #: Chains of the first plan whose next wave may begin.
        self._due: deque[_Chain] = deque()

    def add(self, planned: Iterable[tuple[Pod, Turn]]) -> None:
        """Takes the pods of one plan."""
        found: dict[int, dict[int, dict[str, Pod]]] = {}
        for pod, (chain, wave) in planned:
            members = found.setdefault(chain, {}).setdefault(wave, {})
            members[pod.key] = pod
            self._waiting[pod.key] = members
        if found:
            chains = [_Chain(deque(waves[wave] for wave in sorted(waves))) for waves in found.values()]
            self._plans.append(dict.fromkeys(chains))
            if len(self._plans) == 1:
                self._due += chains

    def through(self, key: str) -> None:
        """Nobody needs to wait for this pod any more."""
        chain = self._of.pop(key, None)
        if chain is not None:
            chain.under_way.discard(key)
            if not chain.under_way:
                self._due.append(chain)

    def swap(self, key: str, other: str) -> None:
        """Two pods whose turns are to come change them."""
        first, second = self._waiting[key], self._waiting[other]
        pod, its = first.pop(key), second.pop(other)
        first[other], second[key] = its, pod
        self._waiting[key], self._waiting[other] = second, first

    def late(self, now: float, asked: float) -> None:
        """To be called now and then: waves that take too long hold up nobody.

        Args:
            asked: when kube-scheduler asked last about any pod that is planned: as long as it does, it comes to them.
        """
        for chain in {id(chain): chain for chain in self._of.values()}.values():
            if now - max(chain.begun, asked) >= _WAVE_SECONDS or now - chain.begun >= _LONGEST_WAVE:
                for key in list(chain.under_way):
                    self.through(key)

    def begin(self, now: float) -> list[Pod]:
        """Pods to nominate now, in their order."""
        begun: list[Pod] = []
        while self._due:
            chain = self._due.popleft()
            while chain.waves and not chain.under_way:
                wave = chain.waves.popleft()
                # One that was given up and planned again since is of a later wave.
                its = [key for key in wave if self._waiting.get(key) is wave]
                for key in its:
                    del self._waiting[key]
                pods = [wave[key] for key in its if self._waits(wave[key])]
                chain.under_way, chain.begun = {pod.key for pod in pods}, now
                self._of.update(dict.fromkeys(chain.under_way, chain))
                begun += pods
            if not chain.under_way:
                self._plans[0].pop(chain, None)
                if not self._plans[0]:
                    self._plans.popleft()
                    self._due += self._plans[0] if self._plans else ()
        return begun
