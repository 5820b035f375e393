"""The room of pods that wait for victims.

Until the victims of a node have left they hold their room; then the pods come that wait for them. So the larger of both
sums counts, of each resource: no other pod gets what the victims leave, nor what the pods need beyond it. Host ports
and volumes of both count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from flowcore.cluster.occupancy import NO_EXCESS, Excess, Occupancy
from flowcore.model.pods import Pod


@dataclass(slots=True)
class _Node:
    """Pods that wait on one node, their victims there, by pod and all of them, and what is counted."""

    coming: dict[str, Pod] = field(default_factory=dict)
    leaving: dict[str, Pod] = field(default_factory=dict)
    victims_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    counted: Excess = NO_EXCESS

    @property
    def excess(self) -> Excess:
        """What the pods that wait need beyond what their victims hold."""
        return Excess.of((pod.pod_class for pod in self.coming.values()), self.leaving.values())


class AwaitedRoomIndex:
    """The room that pods wait for, counted in the occupancy."""

    def __init__(self, occupancy: Occupancy) -> None:
        self._occupancy = occupancy
        self._nodes: dict[str, _Node] = {}

    def awaiting(self, node: str) -> Iterable[str]:
        """Keys of the pods that wait on a node."""
        known = self._nodes.get(node)
        return () if known is None else known.coming

    def counted(self, node: str) -> Excess:
        """What is counted on a node beside its victims."""
        known = self._nodes.get(node)
        return NO_EXCESS if known is None else known.counted

    def add(self, pod: Pod, node: str, victims: Iterable[Pod]) -> None:
        """A pod waits on a node for these victims; those on other nodes hold nothing that it needs."""
        known = self._nodes.setdefault(node, _Node())
        leaving = {victim.key: victim for victim in victims if victim.node_name == node}
        known.coming[pod.key], known.victims_of[pod.key] = pod, tuple(leaving)
        known.leaving.update(leaving)
        self._recount(node, known)
        self._occupancy.change_claims(node, pod.pod_class, 1)

    def remove(self, pod: Pod, node: str) -> None:
        """A pod does not wait on a node any more."""
        known = self._nodes[node]
        self._occupancy.change_claims(node, pod.pod_class, -1)
        del known.coming[pod.key], known.victims_of[pod.key]
        awaited = {key for keys in known.victims_of.values() for key in keys}
        known.leaving = {key: victim for key, victim in known.leaving.items() if key in awaited}
        if not known.coming:
            del self._nodes[node]
        self._recount(node, known)

    def victim_changed(self, victim: Pod, node: str) -> None:
        """A victim of pods that wait on a node uses more or less than before."""
        known = self._nodes[node]
        if victim.key in known.leaving:
            known.leaving[victim.key] = victim
            self._recount(node, known)

    def _recount(self, node: str, known: _Node) -> None:
        before, known.counted = known.counted, known.excess
        self._occupancy.change_excess(node, before, known.counted)
