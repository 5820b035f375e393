"""Kinds of workload of a policy: what their pods cost beside each other, and on kinds of machines.

A cost of 1000 is that of one whole node, and of a pod that takes twice as long as it could.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flowcore.model.inter_pod_constraints import InterPodConstraints, KindPenalty
from flowcore.model.pod_index import ConstraintMatch, PodSignature
from flowcore.model.selectors import Labels, LabelSelector

#: A slowdown of 1 in the whole numbers of ``Machines.slowdowns``.
NORMAL_SPEED = 1000


class WorkloadKind(msgspec.Struct, frozen=True):
    """Pods that suffer from others, and make others suffer, in the same way. They are selected in all namespaces."""

    name: str
    pods: LabelSelector


class Interference(msgspec.Struct, frozen=True):
    """What pods cost beside each other.

    Attributes:
        penalties: a row for each kind, with a number for each kind: cost of a pod of the row's kind for each pod of the
            column's kind on its node.
    """

    penalties: tuple[tuple[int, ...], ...]


class Machines(msgspec.Struct, frozen=True):
    """How fast kinds of machines are for kinds of workload.

    Attributes:
        label: the node label whose values are the kinds of machines.
        slowdowns: kind of workload, kind of machine, and how much longer a pod takes there, in thousandths: 1350 is
            1.35 times as long as at normal speed.
    """

    label: str
    slowdowns: tuple[tuple[str, str, int], ...]


def kind_of(labels: Labels, kinds: Sequence[WorkloadKind]) -> int:
    """Position of the first kind that selects pods with these labels; -1: none does."""
    return next((number for number, kind in enumerate(kinds) if kind.pods.matches(labels)), -1)


def with_kind(
    signature: PodSignature, kinds: Sequence[WorkloadKind], interference: Interference | None
) -> PodSignature:
    """The signature of a governed pod with its kind and its penalties among its rules.

    The same signature if it is of no kind.
    """
    kind = kind_of(signature.labels, kinds)
    if kind < 0:
        return signature
    penalties = () if interference is None else _penalties(kind, kinds, interference)
    constraints = msgspec.structs.replace(
        signature.constraints or InterPodConstraints(), kind=kinds[kind].name, penalties=penalties
    )
    return msgspec.structs.replace(signature, constraints=constraints)


def _penalties(kind: int, kinds: Sequence[WorkloadKind], interference: Interference) -> tuple[KindPenalty, ...]:
    matrix = interference.penalties
    both = [(matrix[kind][other_kind], matrix[other_kind][kind]) for other_kind in range(len(kinds))]
    return tuple(
        KindPenalty(beside.pods, tuple(earlier.pods for earlier in kinds[:number]), *both[number])
        for number, beside in enumerate(kinds)
        if any(both[number])
    )


def penalty_match(penalty: KindPenalty) -> ConstraintMatch:
    """The pods that a penalty counts."""
    return ConstraintMatch((penalty.pods,), None, penalty.earlier)
