"""Which nodes reach a slice, a device or an allocation.

Source: dynamic-resource-allocation structured (NodeMatches), component-helpers scheduling/corev1/nodeaffinity.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flowcore.model.nodes import Node
from flowcore.model.resource_claims import ClaimingPod, DeviceTaker, PlannedClaim
from flowcore.model.resource_slices import NodeReach
from flowcore.model.selectors import Labels, NodeSelectorTerm, value_of

#: The one field of a node that selectors read.
NODE_NAME = "metadata.name"


@dataclass(frozen=True, slots=True)
class ReachedNode:
    """A node as claims see it.

    Attributes:
        offered: extended resources that it offers itself, of those for which devices are asked about.
    """

    name: str
    labels: Labels = ()
    offered: tuple[str, ...] = ()


def reached_node(node: Node, extended_resources: tuple[str, ...] = ()) -> ReachedNode:
    """A node as claims see it; ``extended_resources``: those for which they ask for devices."""
    return ReachedNode(node.name, node.labels, offered_by(node, extended_resources) if extended_resources else ())


def offered_by(node: Node, extended_resources: tuple[str, ...]) -> tuple[str, ...]:
    """The extended resources, of some, that a node offers itself."""
    return tuple(name for name, amount in node.allocatable if amount > 0 and name in extended_resources)


def device_taker(pod: ClaimingPod, node: Node, claims: tuple[PlannedClaim, ...] = ()) -> DeviceTaker:
    """A pod that is to take devices on a node; ``claims``: what it gets there, (): that is not decided."""
    offered = offered_by(node, pod.extended_resources) if pod.extended else ()
    return DeviceTaker(pod, node.name, node.labels, claims, offered)


def reaches(reach: NodeReach, node: ReachedNode) -> bool:
    """Whether a node is among those that reach a slice or a device; nobody reaches what says nothing."""
    if reach.node_name:
        return reach.node_name == node.name
    return reach.all_nodes or (reach.terms is not None and any_term_matches(reach.terms, node))


def any_term_matches(terms: Iterable[NodeSelectorTerm], node: ReachedNode) -> bool:
    """Whether a node selector with these terms selects a node."""
    return any(_matches(term, node) for term in terms)


def _matches(term: NodeSelectorTerm, node: ReachedNode) -> bool:
    return (
        not term.selects_nothing
        and all(requirement.accepts(value_of(node.labels, requirement.key)) for requirement in term.expressions)
        and all(field.key == NODE_NAME and field.accepts(node.name) for field in term.fields)
    )
