"""The spread of pods that say nothing of it: what kube-scheduler gives the pods of a controller or of Services.

kube-scheduler counts the pods that a ReplicaSet, a StatefulSet or a ReplicationController selects, less those that a
Service which selects the pod does not. A controller owns what it selects and its pods come from one template: so its
pods are counted by their owner here, and neither controllers nor Services are read for them. Pods without such a
controller are counted by what all Services that select them select by together.

Source: kube-scheduler plugins/podtopologyspread/plugin.go (systemDefaultConstraints), common.go
(buildDefaultConstraints), plugins/helper/spread.go.
"""

from __future__ import annotations

import msgspec

from flowcore.model.inter_pod_constraints import HOSTNAME, InterPodConstraints, SpreadConstraint
from flowcore.model.pod_index import CONTROLLER, PodSignature
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.model.services import ServiceIndex
from flowcore.model.volumes import ZONE


class DefaultSpread(msgspec.Struct, frozen=True, gc=False):
    """Topology spread constraints without selectors, for pods that have none.

    Attributes:
        required: DoNotSchedule.
        preferred: ScheduleAnyway.
    """

    required: tuple[SpreadConstraint, ...] = ()
    preferred: tuple[SpreadConstraint, ...] = ()


#: kube-scheduler's own; nodes without the label of a zone are not put last.
SYSTEM_SPREAD = DefaultSpread(
    preferred=(
        SpreadConstraint(HOSTNAME, 3, None, is_default=True, needs_all_labels=False),
        SpreadConstraint(ZONE, 5, None, is_default=True, needs_all_labels=False),
    )
)
NO_SPREAD = DefaultSpread()


def with_default_spread(
    signature: PodSignature, constraints: InterPodConstraints, default: DefaultSpread, services: ServiceIndex | None
) -> InterPodConstraints:
    """The rules of a pod with a default spread if it has no constraints of its own; an earlier default is replaced."""
    required = tuple(each for each in constraints.spread if not each.is_default)
    preferred = tuple(each for each in constraints.soft_spread if not each.is_default)
    if not (required or preferred or constraints.unreadable_spread) and default != NO_SPREAD:
        selector = spread_selector(signature, services)
        if selector is not None:
            required = tuple(msgspec.structs.replace(each, selector=selector) for each in default.required)
            preferred = tuple(msgspec.structs.replace(each, selector=selector) for each in default.preferred)
    if (required, preferred) == (constraints.spread, constraints.soft_spread):
        return constraints
    return msgspec.structs.replace(constraints, spread=required, soft_spread=preferred)


def spread_selector(signature: PodSignature, services: ServiceIndex | None) -> LabelSelector | None:
    """The pods among which a pod is spread; None: it has neither a controller that counts nor a Service."""
    labels = signature.labels
    if labels and labels[0][0] == CONTROLLER:
        return LabelSelector((Requirement(CONTROLLER, "In", (labels[0][1],)),))
    return None if services is None else services.selector_of(signature.namespace, labels)
