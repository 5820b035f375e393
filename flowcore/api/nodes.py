"""Nodes and namespaces."""

from __future__ import annotations

from typing import Any, Final

from flowcore.api.base import Interner, Quantities, Wire, WireMeta, to_labels
from flowcore.api.node_features import declared_features
from flowcore.model.errors import ModelError
from flowcore.model.nodes import MEASURED_BANDWIDTH, Node, Report, Taint
from flowcore.model.quantities import MAX_AMOUNT, nanos, whole_from_nanos
from flowcore.model.resources import Amounts, read_list, to_amounts

#: Each name costs a column over all nodes. A node that offers more resources gets no pods.
MAX_NODE_RESOURCES: Final = 256


class WireTaint(Wire):
    key: str = ""
    value: str | None = None
    effect: str | None = None


class WireNodeSpec(Wire):
    unschedulable: bool | None = None
    taints: list[WireTaint] | None = None


class WireImage(Wire):
    names: list[str] | None = None
    size_bytes: int = 0


class WireNodeStatus(Wire):
    allocatable: Quantities | None = None
    images: list[WireImage] | None = None
    declared_features: list[str] | None = None


class WireNodeMeta(WireMeta):
    annotations: dict[str, Any] | None = None


class WireNode(Wire):
    metadata: WireNodeMeta
    spec: WireNodeSpec | None = None
    status: WireNodeStatus | None = None


class WireNamespace(Wire):
    metadata: WireMeta


def to_node(wire: WireNode, intern: Interner) -> Node:
    """A node. Where its allocatable does not parse or is too long, ``problem`` says so."""
    spec, status, problem = wire.spec or WireNodeSpec(), wire.status or WireNodeStatus(), ""
    allocatable: Amounts = ()
    try:
        allocatable = _allocatable(status.allocatable)
    except ModelError as error:
        problem = f"node's {error}"
    return Node(
        name=wire.metadata.name,
        uid=wire.metadata.uid or "",
        # Nodes share labels and images: each pair is held once.
        labels=tuple(intern(pair) for pair in to_labels(wire.metadata.labels)),
        taints=intern(tuple(Taint(t.key, t.value or "", t.effect or "") for t in spec.taints or ())),
        unschedulable=bool(spec.unschedulable),
        allocatable=intern(allocatable),
        features=intern(declared_features(status.declared_features)),
        problem=problem,
        report=Report(
            images=tuple(
                intern((intern(name), max(0, min(image.size_bytes, MAX_AMOUNT))))
                for image in status.images or ()
                for name in image.names or ()
            ),
            bandwidth=_measured_bandwidth((wire.metadata.annotations or {}).get(MEASURED_BANDWIDTH)),
        ),
    )


def _allocatable(allocatable: Quantities | None) -> Amounts:
    if len(allocatable or ()) > MAX_NODE_RESOURCES:
        raise ModelError("status.allocatable", f"it names more than {MAX_NODE_RESOURCES} resources")
    return to_amounts(read_list(allocatable, "status.allocatable"))


def _measured_bandwidth(text: object) -> int | None:
    """The annotation's value. None where it is no amount: a cost alone must not exclude a node."""
    try:
        amount = whole_from_nanos(nanos(text)) if isinstance(text, str) else -1
    except ModelError:
        return None
    return amount if amount >= 0 else None
