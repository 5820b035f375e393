"""Objects with only the fields that plans read, for dumps that leave a company."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from flowcore.api.base import Wire
from flowcore.api.gang_parents import PARENT_WIRES
from flowcore.api.gangs import WirePodGroup
from flowcore.api.kinds import (
    DEVICE_CLASS,
    NAMESPACE,
    NODE,
    POD,
    POD_GROUPS,
    PRIORITY_CLASS,
    QUEUE,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
)
from flowcore.api.nodes import WireNamespace, WireNode
from flowcore.api.parent_sizes import WireParent
from flowcore.api.pod_objects import WirePod
from flowcore.api.priority_classes import PriorityClass
from flowcore.api.reading import READ_BY
from flowcore.api.resource_claims import WireDeviceClaimTemplate
from flowcore.api.storage_objects import READ_ANNOTATIONS, STORAGE_WIRES
from flowcore.model.gang_parents import ParentRule
from flowcore.model.gang_spec import GangSource
from flowcore.model.nodes import MEASURED_BANDWIDTH

_WIRES: Final[dict[str, type[Wire]]] = {
    NODE.kind: WireNode,
    POD.kind: WirePod,
    NAMESPACE.kind: WireNamespace,
    PRIORITY_CLASS.kind: PriorityClass,
    **{kind.kind: wire for kind, (wire, _) in READ_BY.items() if kind != QUEUE},
    **dict.fromkeys((kind.kind for kind in POD_GROUPS.values()), WirePodGroup),
    **STORAGE_WIRES,
    RESOURCE_CLAIM_TEMPLATE.kind: WireDeviceClaimTemplate,
    **{kind.kind: wire for kind, wire in PARENT_WIRES.items()},
}
#: Kinds whose structs take all annotations, and what is read of them.
_WITH_ALL_ANNOTATIONS: Final = frozenset((NODE.kind, *STORAGE_WIRES))
_ANNOTATIONS: Final = READ_ANNOTATIONS | {MEASURED_BANDWIDTH}
#: What only delivery Binder reads: which spec a condition is about, who wrote an allocation, what drivers say of its
#: devices and are told of them, and what is said of a PodGroup's scheduling.
_UNPLANNED: Final = {
    POD.kind: (("metadata", "generation"),),
    RESOURCE_CLAIM.kind: (("metadata", "managedFields"), ("status", "devices")),
    DEVICE_CLASS.kind: (("spec", "config"),),
    POD_GROUPS[GangSource.NATIVE].kind: (("metadata", "generation"), ("status", "conditions")),
}
#: Of kinds that are kept whole (policies, queues, samples of metrics): plans read all of their spec.
_UNREAD_METADATA: Final = ("annotations", "managedFields")


def read_fields(item: dict[str, Any]) -> dict[str, Any]:
    """An object with the fields that plans read, and no others: a plan of such objects is the same.

    Names, namespaces, labels and names of images are read, so they stay. Environment variables, commands, other
    annotations, addresses and managed fields do not.

    Args:
        item: an object of a kind that is read (``flowcore.api.kinds``), with ``kind`` and ``apiVersion``.

    Raises:
        msgspec.ValidationError: it does not match its kind.
    """
    wire = _WIRES.get(item["kind"])
    if wire is None or item["apiVersion"].startswith("metrics.k8s.io/"):
        metadata = {name: value for name, value in item["metadata"].items() if name not in _UNREAD_METADATA}
        return item | {"metadata": metadata}
    kept: dict[str, Any] = _without_none(msgspec.to_builtins(msgspec.convert(item, wire)))
    metadata = kept["metadata"]
    if item["kind"] in _WITH_ALL_ANNOTATIONS and "annotations" in metadata:
        metadata["annotations"] = {
            name: value for name, value in metadata["annotations"].items() if name in _ANNOTATIONS
        }
    for part, name in _UNPLANNED.get(item["kind"], ()):
        kept.get(part, {}).pop(name, None)
    return {"kind": item["kind"], "apiVersion": item["apiVersion"], **kept}


def read_parent_fields(item: dict[str, Any], rule: ParentRule) -> dict[str, Any]:
    """An object of a kind that a policy names, with the fields that plans read (``read_fields``).

    Raises:
        msgspec.ValidationError: its metadata cannot be read.
    """
    kept: dict[str, Any] = _without_none(msgspec.to_builtins(msgspec.convert(item, WireParent)))
    for path in rule.sizes:
        _copy(item, kept, path.split("."))
    return {"kind": item["kind"], "apiVersion": item["apiVersion"], **kept}


def _copy(of: dict[str, Any], to: dict[str, Any], steps: Sequence[str]) -> None:
    """Copies what is at a path; lists keep their length."""
    name, rest = steps[0].removesuffix("[]"), steps[1:]
    value = of.get(name)
    if isinstance(value, list) and steps[0].endswith("[]") and rest:
        kept = to.setdefault(name, [{} for _ in value])
        for inner, into in zip(value, kept, strict=True):
            if isinstance(inner, dict):
                _copy(inner, into, rest)
    elif isinstance(value, dict) and rest:
        _copy(value, to.setdefault(name, {}), rest)
    elif name in of and not isinstance(value, dict | list):
        to[name] = value


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_none(inner) for inner in value]
    return value
