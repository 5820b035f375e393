"""PodDisruptionBudgets: how many pods that a selector selects may be evicted just now.

Source: policy/v1 PodDisruptionBudget; the Eviction API (registry/core/pod/storage/eviction.go) and kube-scheduler's
preemption (plugins/defaultpreemption, filterPodsWithPDBViolation) count by the same status.
"""

from __future__ import annotations

import msgspec

from flowcore.model.selectors import Labels, LabelSelector


class DisruptionBudget(msgspec.Struct, frozen=True, gc=False):
    """A PodDisruptionBudget.

    Attributes:
        selector: None selects no pod; one without requirements selects all pods of the namespace.
        allowed: how many more pods may be evicted now; 0 while the status is older than the spec.
        disrupted: names of pods whose eviction the status counts already.
    """

    namespace: str
    name: str
    selector: LabelSelector | None = None
    allowed: int = 0
    disrupted: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    def selects(self, namespace: str, labels: Labels) -> bool:
        """Whether the budget protects pods with these labels."""
        return namespace == self.namespace and self.selector is not None and self.selector.matches(labels)
