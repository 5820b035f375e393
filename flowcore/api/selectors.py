"""Selectors of labels and of nodes."""

from __future__ import annotations

from flowcore.api.base import Wire
from flowcore.model.errors import PolicyError
from flowcore.model.selectors import LabelSelector, NodeSelectorTerm, Requirement, is_label_key, is_label_value


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


def parse_selector(wire: WireLabelSelector, field: str) -> LabelSelector:
    """The label selector of a policy, with the checks that Kubernetes makes of its own objects.

    Args:
        field: path of the selector, as ``kubectl explain`` writes it.

    Raises:
        PolicyError: Kubernetes would refuse the selector; the error names the field.
    """
    for key, value in (wire.match_labels or {}).items():
        if not is_label_key(key):
            raise PolicyError(f"{field}.matchLabels", f'"{key}" is not a label key')
        if not is_label_value(value):
            raise PolicyError(f"{field}.matchLabels.{key}", f'"{value}" is not a label value')
    for index, requirement in enumerate(wire.match_expressions or ()):
        path = f"{field}.matchExpressions[{index}]"
        if requirement.operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            raise PolicyError(
                f"{path}.operator", f'"{requirement.operator}" is not one of In, NotIn, Exists, DoesNotExist'
            )
        if not is_label_key(requirement.key):
            raise PolicyError(f"{path}.key", f'"{requirement.key}" is not a label key')
        if (requirement.operator in ("In", "NotIn")) != bool(requirement.values):
            raise PolicyError(
                f"{path}.values", "In and NotIn need at least one value; Exists and DoesNotExist take none"
            )
    return to_label_selector(wire)


def to_requirements(wire: list[WireRequirement] | None) -> tuple[Requirement, ...]:
    """Requirements, in the same order."""
    return tuple(Requirement(r.key, r.operator, tuple(r.values or ())) for r in wire or ())


def to_node_term(wire: WireNodeSelectorTerm | None) -> NodeSelectorTerm:
    """A node selector term. A term that is null selects nothing."""
    if wire is None:
        return NodeSelectorTerm()
    return NodeSelectorTerm(to_requirements(wire.match_expressions), to_requirements(wire.match_fields))
