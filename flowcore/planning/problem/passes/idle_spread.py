"""Default spread that decides nothing in a round: such pods are planned like pods without any.

It is that of a controller's only pod. Most controllers have one, and pods that no preference tells apart are one group.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property

import msgspec

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.inter_pod_constraints import InterPodConstraints, SpreadConstraint
from flowcore.model.pod_index import CONTROLLER, PodSignature, SpreadMatch


class SpreadInRound:
    """What the default spread of waiting pods counts."""

    def __init__(self, snapshot: Snapshot) -> None:
        """The nodes, and the pods that run and that wait."""
        self._snapshot = snapshot
        self._labelled: dict[str, tuple[bool, bool]] = {}

    def without_idle(self, signature: PodSignature) -> PodSignature:
        """A waiting pod's signature without a default spread that prefers no node to another."""
        constraints = signature.constraints
        if constraints is None or not self._is_idle(signature, constraints.soft_spread):
            return signature
        rest = msgspec.structs.replace(constraints, soft_spread=())
        return msgspec.structs.replace(signature, constraints=None if rest == InterPodConstraints() else rest)

    def _is_idle(self, signature: PodSignature, spread: tuple[SpreadConstraint, ...]) -> bool:
        if not spread or not spread[0].is_default or signature.labels[0][0] != CONTROLLER:
            return False
        if self._waiting[signature.labels[0][1]] > 1 or not all(map(self._is_even, spread)):
            return False
        # All of a pod's default constraints count the same pods.
        return not self._snapshot.pod_index.matching_pods(SpreadMatch(signature.namespace, spread[0].selector))

    @cached_property
    def _waiting(self) -> Counter[str]:
        """Waiting pods of each controller."""
        signatures = (pod.signature for pod in self._snapshot.pending)
        return Counter(each.labels[0][1] for each in signatures if each.labels and each.labels[0][0] == CONTROLLER)

    def _is_even(self, constraint: SpreadConstraint) -> bool:
        """Whether all nodes have the label of a constraint, or none has it and that does not matter."""
        key = constraint.topology_key
        if key not in self._labelled:
            labelled = self._snapshot.table.column(key).codes >= 0
            self._labelled[key] = bool(labelled.all()), bool(labelled.any())
        every, some = self._labelled[key]
        return every or not (some or constraint.needs_all_labels)
