"""Nodes and namespaces."""

from __future__ import annotations

from flowcore.model.errors import ModelError
from flowcore.model.nodes import Node, Taint
from flowcore.model.resources import Amounts, read_list, to_amounts
from flowcore.model.wire.base import Interner, Quantities, Wire, WireMeta, to_labels
from flowcore.model.wire.features import declared_features


class WireTaint(Wire):
    key: str = ""
    value: str | None = None
    effect: str | None = None


class WireNodeSpec(Wire):
    unschedulable: bool | None = None
    taints: list[WireTaint] | None = None


class WireNodeStatus(Wire):
    allocatable: Quantities | None = None
    declared_features: list[str] | None = None


class WireNode(Wire):
    metadata: WireMeta
    spec: WireNodeSpec | None = None
    status: WireNodeStatus | None = None


class WireNamespace(Wire):
    metadata: WireMeta


def to_node(wire: WireNode, intern: Interner) -> Node:
    """A node; an allocatable that does not parse makes ``problem`` name it."""
    spec, status, problem = wire.spec or WireNodeSpec(), wire.status or WireNodeStatus(), ""
    allocatable: Amounts = ()
    try:
        allocatable = to_amounts(read_list(status.allocatable, "status.allocatable"))
    except ModelError as error:
        problem = f"node's {error}"
    return Node(
        name=wire.metadata.name,
        uid=wire.metadata.uid or "",
        labels=to_labels(wire.metadata.labels),
        taints=tuple(Taint(t.key, t.value or "", t.effect or "") for t in spec.taints or ()),
        unschedulable=bool(spec.unschedulable),
        allocatable=intern(allocatable),
        features=intern(declared_features(status.declared_features)),
        problem=problem,
    )
