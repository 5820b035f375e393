"""Gangs: pods that are placed all or not at all.

A PodGroup, an annotation or a policy's constraint may say that pods belong together. A round sees one value: how
many of those that wait must be placed at once. Source: the "and" construct of the seed pod-affinity-and-gangs.md,
PodGroup of KEP-4671.
"""

from __future__ import annotations

import msgspec

from flowcore.model.pods import PodClass


class PodsToCome(msgspec.Struct, frozen=True, gc=False):
    """Equal pods that do not exist yet, and how many they are.

    Attributes:
        owed: how many pods like these are to come of other gangs of the namespace, which run already.
    """

    pod_class: PodClass
    count: int
    owed: int = 0


class Gang(msgspec.Struct, frozen=True, gc=False):
    """Waiting pods that a plan places together: at least ``min_placed`` of them, or none.

    Attributes:
        name: as its users know it, and unique: "PodGroup ml/train", "together web of policy shop".
        min_placed: waiting pods that must be placed at once: what the gang needs less the pods that have a node.
            Beyond that any number may be placed. Not above zero: it has what it needs, its pods are like any others.
        atomic_group: gangs with the same unit are placed all or none of them; "": by itself.
        topology_key: a label, or several (``domain_value``): all of its pods go to nodes with one value of each; "": no
            such rule.
        domain: the value where some of its pods are already; "": none are, any value will do.
        preferred: levels from wide to narrow, each a topology as ``topology_key`` and the domain where most of its pods
            are already, "" where none are: as few domains as will do, of the narrowest level first.
        slice_of: the gang that it is a slice of: all of its pods are of that gang too; "": of none.
        unschedulable_reason: why nothing of it can be placed, whatever room there is; "": it can.
        partially_placed: some of what it needs has a node already: until the rest has, that is no use.
        foreign_pods: keys of its pods that are needed only where there are too few others: of another controller.
        to_come: pods that its controller makes once it runs, and that must have room when it is placed.
        placed: how many of its pods have a node, where these decide its domain; 0: none, or not known.
        is_one_of_several: it was made before the plan, of pods that may be in other such gangs as well.
    """

    name: str
    min_placed: int
    atomic_group: str = ""
    topology_key: str = ""
    domain: str = ""
    preferred: tuple[tuple[str, str], ...] = ()
    slice_of: str = ""
    unschedulable_reason: str = ""
    partially_placed: bool = False
    foreign_pods: tuple[str, ...] = ()
    to_come: tuple[PodsToCome, ...] = ()
    placed: int = 0
    is_one_of_several: bool = False

    @property
    def needs_domain(self) -> bool:
        """Whether it must be in one domain and a plan has yet to choose it."""
        return bool(self.topology_key) and not self.domain

    @property
    def chooses_domain(self) -> bool:
        """Whether a plan has yet to choose the nodes that its pods are kept to."""
        return self.needs_domain or bool(self.preferred)

    @property
    def has_topology(self) -> bool:
        """Whether its pods are kept to nodes that are chosen for them alone."""
        return bool(self.topology_key or self.preferred)

    @property
    def levels(self) -> tuple[str, ...]:
        """Its topologies, from wide to narrow."""
        return (*((self.topology_key,) if self.topology_key else ()), *(key for key, _ in self.preferred))
