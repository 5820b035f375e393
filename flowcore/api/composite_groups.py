"""CompositePodGroups: from their objects to model values.

Source: k8s.io/api scheduling/v1alpha3 CompositePodGroup.
"""

from __future__ import annotations

from flowcore.api.base import Int32, Wire, WireMeta
from flowcore.api.gangs import WireSchedulingConstraints, topology_of
from flowcore.model.composite_groups import CompositeGroup, CompositeKey


class _WireGangPolicy(Wire):
    min_group_count: Int32 = 0


class _WireSchedulingPolicy(Wire):
    gang: _WireGangPolicy | None = None


class _WireDisruptionMode(Wire):
    #: A union: {"single": {}} or {"all": {}}.
    all: dict[str, object] | None = None


class WireCompositeGroupSpec(Wire):
    parent_composite_pod_group_name: str | None = None
    scheduling_policy: _WireSchedulingPolicy | None = None
    scheduling_constraints: WireSchedulingConstraints | None = None
    disruption_mode: _WireDisruptionMode | None = None
    priority: Int32 | None = None
    preemption_policy: str | None = None


class WireCompositeGroup(Wire):
    metadata: WireMeta
    spec: WireCompositeGroupSpec | None = None


def to_composite_group(wire: WireCompositeGroup) -> CompositeGroup:
    """A CompositePodGroup.

    One with the policy basic needs one of its groups, as in kube-scheduler (gangscheduling.go, getMinCount).
    """
    meta, spec = wire.metadata, wire.spec or WireCompositeGroupSpec()
    gang = spec.scheduling_policy.gang if spec.scheduling_policy is not None else None
    return CompositeGroup(
        CompositeKey(meta.namespace or "default", meta.name),
        spec.parent_composite_pod_group_name or "",
        1 if gang is None else max(1, gang.min_group_count),
        topology_of(spec.scheduling_constraints),
        evicted_whole=spec.disruption_mode is not None and spec.disruption_mode.all is not None,
        priority=spec.priority,
        preempts=None if not spec.preemption_policy else spec.preemption_policy != "Never",
    )
