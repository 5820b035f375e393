"""Selectors of labels and of nodes."""

from __future__ import annotations

from flowcore.model.selectors import LabelSelector, NodeSelectorTerm, Requirement
from flowcore.model.wire.base import Wire


class WireRequirement(Wire):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class WireLabelSelector(Wire):
    match_labels: dict[str, str] | None = None
    match_expressions: list[WireRequirement] | None = None


class WireNodeSelectorTerm(Wire):
    match_expressions: list[WireRequirement] | None = None
    match_fields: list[WireRequirement] | None = None


class WireNodeSelector(Wire):
    node_selector_terms: list[WireNodeSelectorTerm | None] | None = None


def to_label_selector(wire: WireLabelSelector) -> LabelSelector:
    """metav1.LabelSelector to a conjunction of requirements."""
    labels = tuple(Requirement(key, "In", (value,)) for key, value in sorted((wire.match_labels or {}).items()))
    return LabelSelector(labels + to_requirements(wire.match_expressions))


def to_requirements(wire: list[WireRequirement] | None) -> tuple[Requirement, ...]:
    """Requirements in the order given."""
    return tuple(Requirement(r.key, r.operator, tuple(r.values or ())) for r in wire or ())


def to_node_term(wire: WireNodeSelectorTerm | None) -> NodeSelectorTerm:
    """A term; one that is null selects nothing."""
    if wire is None:
        return NodeSelectorTerm()
    return NodeSelectorTerm(to_requirements(wire.match_expressions), to_requirements(wire.match_fields))
