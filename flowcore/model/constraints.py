"""What a policy demands across the pods that it governs: the words of the seed pod-affinity-and-gangs.md.

A policy adds to what pods demand themselves, it never loosens. Constraints hold for governed pods as they are placed;
pods that run count wherever a description meets them, in the namespaces that the policy selects, whoever placed them.
"""

from __future__ import annotations

import msgspec

from flowcore.model.selectors import LabelSelector


class Conflict(msgspec.Struct, frozen=True, tag=True):
    """At most ``most`` of these pods in each domain, whoever owns them. Source: Fleet's Conflicts; figure 2, 8, 11."""

    name: str
    pods: LabelSelector
    topology_key: str
    most: int = 1


class Exclusive(msgspec.Struct, frozen=True, tag=True):
    """Pods of different groups never share a domain ("xor"). Source: figure 7.

    Attributes:
        most: at most so many pods of all groups in a domain, "r"; None: any number.
        most_placed: at most so many pods of all groups placed at a time, "p"; None: any number.
    """

    name: str
    groups: tuple[LabelSelector, ...]
    topology_key: str
    most: int | None = None
    most_placed: int | None = None


class OneDomain(msgspec.Struct, frozen=True, tag=True):
    """All of these pods in one domain, or none of them placed ("together"). Source: Fleet's MachineOf; figure 10."""

    name: str
    pods: LabelSelector
    topology_key: str


class Global(msgspec.Struct, frozen=True, tag=True):
    """At most one of these pods on each matching node, and on no other. Source: Fleet's Global; figure 3.

    Attributes:
        all_or_none: every matching node has one, or none is placed; else as many as fit.
    """

    name: str
    pods: LabelSelector
    nodes: LabelSelector
    all_or_none: bool = False


Constraint = Conflict | Exclusive | OneDomain | Global
