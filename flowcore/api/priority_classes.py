"""PriorityClasses (scheduling.k8s.io/v1), for pods and PodGroups into which the API server has not written a priority.

Source: kube-apiserver plugin/pkg/admission/priority and pkg/apis/scheduling.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from flowcore.api.base import Int32, Wire, WireMeta
from flowcore.api.gangs import WirePodGroup
from flowcore.api.pod_objects import WirePodSpec
from flowcore.model.errors import ModelError

_SYSTEM_PREFIX: Final = "system-"
_SYSTEM_VALUES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
#: HighestUserDefinablePriority.
_MAX_VALUE: Final = 1_000_000_000


class PriorityClass(Wire):
    """A PriorityClass."""

    metadata: WireMeta
    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str | None = None


def check_priority_class(priority_class: PriorityClass) -> None:
    """Checks what the API server would refuse.

    Raises:
        ModelError: the value is out of range.
    """
    name, value = priority_class.metadata.name, priority_class.value
    if name.startswith(_SYSTEM_PREFIX):
        if _SYSTEM_VALUES.get(name) != value:
            raise ModelError("metadata.name", f"{_SYSTEM_PREFIX} is reserved for Kubernetes; use another name")
    elif value > _MAX_VALUE:
        raise ModelError("value", f"{value} is more than {_MAX_VALUE}, the highest priority that Kubernetes accepts")


class PriorityClasses:
    """PriorityClasses by name, the two of the system among them."""

    def __init__(self, classes: Iterable[PriorityClass]) -> None:
        system = {name: PriorityClass(WireMeta(name), value) for name, value in _SYSTEM_VALUES.items()}
        self._by_name: Mapping[str, PriorityClass] = system | {
            priority_class.metadata.name: priority_class for priority_class in classes
        }
        # If several are the default, the lowest value counts (getDefaultPriorityClass).
        defaults = [each for each in self._by_name.values() if each.global_default]
        self._default = min(
            defaults, key=lambda priority_class: priority_class.value, default=PriorityClass(WireMeta())
        )

    def resolve(self, spec: WirePodSpec) -> WirePodSpec | None:
        """The spec with priority and preemptionPolicy as the API server would write them; values that are there stay.

        Returns:
            None: it has no priority, and there is no PriorityClass of that name.
        """
        name = spec.priority_class_name
        priority_class = self._by_name.get(name) if name else self._default
        if priority_class is None:
            return None if spec.priority is None else spec
        return msgspec.structs.replace(
            spec,
            priority=priority_class.value if spec.priority is None else spec.priority,
            preemption_policy=spec.preemption_policy or priority_class.preemption_policy,
        )

    def resolve_group(self, group: WirePodGroup) -> WirePodGroup | None:
        """A PodGroup that names a class, with priority and preemptionPolicy as the API server would write them.

        Returns:
            None: there is no PriorityClass of that name.
        """
        spec = group.spec
        priority_class = self._by_name.get(spec.priority_class_name or "") if spec is not None else None
        if spec is None or priority_class is None:
            return None
        preemption_policy = spec.preemption_policy or priority_class.preemption_policy
        changed = msgspec.structs.replace(spec, priority=priority_class.value, preemption_policy=preemption_policy)
        return msgspec.structs.replace(group, spec=changed)
