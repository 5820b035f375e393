"""Constraints of a policy across the pods that it governs, in the words of the seed pod-affinity-and-gangs.md.

A policy adds constraints to those of the pods; it never loosens them. A constraint decides about governed pods when
they are placed. It counts every running pod that its selector matches in the policy's namespaces, however it was placed
it.
"""

from __future__ import annotations

import msgspec

from flowcore.model.selectors import LabelSelector


class Conflict(msgspec.Struct, frozen=True, tag=True):
    """At most ``max_per_domain`` of these pods in each domain. Source: Fleet's Conflicts; figure 2, 8, 11."""

    name: str
    pods: LabelSelector
    topology_key: str
    max_per_domain: int = 1


class Exclusive(msgspec.Struct, frozen=True, tag=True):
    """Pods of different groups never share a domain ("xor"). Source: figure 7.

    Attributes:
        max_per_domain: most pods of all groups in a domain, "r"; None: any number.
        max_placed: most pods of all groups that may be placed at a time, "p"; None: any number.
    """

    name: str
    groups: tuple[LabelSelector, ...]
    topology_key: str
    max_per_domain: int | None = None
    max_placed: int | None = None


class OneDomain(msgspec.Struct, frozen=True, tag=True):
    """All of these pods in one domain, or none of them placed ("together"). Source: Fleet's MachineOf; figure 10."""

    name: str
    pods: LabelSelector
    topology_key: str


class Global(msgspec.Struct, frozen=True, tag=True):
    """At most one of these pods on each matching node, and on no other. Source: Fleet's Global; figure 3.

    Attributes:
        all_or_none: every matching node gets one, or none is placed; otherwise as many as fit.
    """

    name: str
    pods: LabelSelector
    nodes: LabelSelector
    all_or_none: bool = False


Constraint = Conflict | Exclusive | OneDomain | Global
