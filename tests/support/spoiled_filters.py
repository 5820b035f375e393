"""A wrong version of each filter: verdicts that are compared with kube-scheduler's must then differ."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from flowcore.api import node_features
from flowcore.cluster.arrays import node_matching
from flowcore.model import resources
from flowcore.model.inter_pod_constraints import AffinityTerm
from flowcore.model.nodes import Taint
from flowcore.model.pods import HostPort, Toleration
from flowcore.model.selector_index import EVERYWHERE
from flowcore.model.selectors import Requirement
from flowcore.model.volumes import Disk
from flowcore.rules.filters import (
    node_name,
    node_unschedulable,
    node_volume_limits,
    volume_binding,
    volume_zone,
)
from flowcore.rules.filters.node_ports import HeldPorts
from flowcore.rules.topology import spread


def _always(answer: Any) -> Callable[..., Any]:
    return lambda *_args, **_more: answer


def _by_key(tolerations: Collection[Toleration], taint: Taint) -> bool:
    return any(toleration.key == taint.key for toleration in tolerations)


def _same_address(held: HeldPorts, others: Iterable[HostPort]) -> bool:
    return any(other.ip in held._addresses.get((other.protocol, other.port), ()) for other in others)


#: Filter -> what is put in the place of what: an object, its attribute, and the wrong value.
SPOILED_FILTERS: dict[str, tuple[Any, str, Any]] = {
    "NodeName": (node_name, "rejections", _always(())),
    "NodeUnschedulable": (node_unschedulable, "tolerates", _always(False)),
    "TaintToleration": (node_matching, "tolerates", _by_key),
    "NodeAffinity": (Requirement, "is_valid", True),
    "NodePorts": (HeldPorts, "clashes", _same_address),
    "NodeResourcesFit": (resources, "raise_to", lambda total, floor: total.update(floor)),
    "PodTopologySpread": (spread, "included", lambda _constraint, _pod, table: table.unreadable),
    "InterPodAffinity": (AffinityTerm, "scope", EVERYWHERE),
    "VolumeRestrictions": (Disk, "conflicts", lambda self, other: (self.plugin, self.key) == (other.plugin, other.key)),
    "NodeVolumeLimits": (node_volume_limits, "not_for_pod", _always("")),
    "VolumeBinding": (volume_binding, "may_hold", lambda volume, claim: volume.size >= (claim.size or 0)),
    "VolumeZone": (volume_zone, "_TODAY", {key: key for key in volume_zone._TODAY}),
    "NodeDeclaredFeatures": (node_features, "RESTART_ALL", "RestartAllContainers"),
}  # fmt: skip
