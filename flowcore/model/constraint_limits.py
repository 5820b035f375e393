"""A policy's constraints as rules of each pod that it governs.

They become limits of the selected pods: at most this many of them in a domain. ``OneDomain`` and ``all_or_none`` are
gangs (passes/constraint_gangs.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from flowcore.model.constraints import Conflict, Constraint, Exclusive, Global, OneDomain
from flowcore.model.default_spread import with_default_spread
from flowcore.model.inter_pod_constraints import (
    EACH_NODE,
    HOSTNAME,
    AllowedNodes,
    CountPrice,
    InterPodConstraints,
    MaxPerDomain,
    MinPerDomain,
    NodePrice,
)
from flowcore.model.networks import WAY, LimitedArc, NetworkRules
from flowcore.model.pod_index import PodSignature
from flowcore.model.policies import Policy
from flowcore.model.selectors import Labels, LabelSelector, NodeSelectorTerm, value_of
from flowcore.model.services import ServiceIndex


def with_policy_spread(signature: PodSignature, policy: Policy, services: ServiceIndex | None = None) -> PodSignature:
    """The signature of a governed pod with its policy's default spread; the same one if that changes nothing.

    Args:
        services: by which pods without a controller are spread; None: they are not.
    """
    constraints = signature.constraints or InterPodConstraints()
    spread = with_default_spread(signature, constraints, policy.cost.default_spread, services)
    return signature if spread is constraints else _with_constraints(signature, spread)


def with_policy_constraints(
    signature: PodSignature, policy: Policy, services: ServiceIndex | None = None
) -> PodSignature:
    """The signature of a governed pod with its policy's default spread and the limits of the policy's constraints.

    The same signature if there are none. Those of an earlier policy are replaced.

    Args:
        services: as for ``with_policy_spread``.
    """
    signature = with_policy_spread(signature, policy, services)
    if signature.constraints is None and not policy.constraints and policy.network_rules is None:
        return signature
    constraints = signature.constraints or InterPodConstraints()
    limits, allowed_nodes = limits_for(signature.labels, policy), _allowed_nodes(signature.labels, policy)
    updated = msgspec.structs.replace(constraints, limits=limits, allowed_nodes=allowed_nodes, contradiction="")
    if policy.network_rules is not None:
        updated = _with_network(updated, signature.labels, policy.network_rules)
    return signature if updated == constraints else _with_constraints(signature, updated)


def _with_network(constraints: InterPodConstraints, labels: Labels, rules: NetworkRules) -> InterPodConstraints:
    """The constraints of a governed pod with these labels, with what its policy's network asks."""
    ways = rules.ways_of(labels)
    leading = [way for way in ways if not way.ends_nowhere]
    terms = tuple(dict.fromkeys(way.nodes for way in leading if way.nodes is not None))
    allowed = (AllowedNodes(rules.name, terms),) if all(way.nodes is not None for way in leading) else ()
    if rules.refused:
        allowed = (AllowedNodes(f"{rules.name}, which is refused: {rules.refused}", ()),)
    elif not leading:
        why = next((way.ends_nowhere for way in ways), "no arc begins at it that leads to a node")
        allowed = (AllowedNodes(f"{rules.name}, which leads it nowhere: {why}", ()),)
    arcs = [rules.arcs[number] for number in sorted({number for way in ways for number in way.arcs})]
    # As long as it is open which way a pod takes it only has what holds for each.
    counted = [] if rules.has_choice and not value_of(labels, WAY) else arcs
    return msgspec.structs.replace(
        constraints,
        limits=(
            *constraints.limits,
            *filter(None, (maximum_of(arc, rules) for arc in counted)),
            *(
                MaxPerDomain(
                    f"{arc.name}, which takes {arc.minimum} pods or none",
                    EACH_NODE,
                    arc.selectors,
                    rules.namespaces,
                    0,
                    arc.closed,
                )
                for arc in counted
                if arc.closed
            ),
        ),
        allowed_nodes=(*constraints.allowed_nodes, *allowed),
        node_prices=tuple(dict.fromkeys(NodePrice(way.nodes, way.cost, way.part, way.weight) for way in leading)),
        count_prices=tuple(
            CountPrice(arc.name, *_counted(arc, rules), arc.segments, arc.nodes, arc.beside)
            for arc in counted
            if len(arc.segments) > 1
        ),
        minimums=tuple(filter(None, (minimum_of(arc, rules) for arc in arcs))),
        waiting_cost=min((cost for selector, cost in rules.waiting if selector.matches(labels)), default=0),
    )


def maximum_of(arc: LimitedArc, rules: NetworkRules) -> MaxPerDomain | None:
    """How many units an arc of a network lets in; None: any number."""
    if arc.maximum is None:
        return None
    return MaxPerDomain(arc.name, *_counted(arc, rules), arc.maximum, arc.nodes, arc.beside)


def minimum_of(arc: LimitedArc, rules: NetworkRules) -> MinPerDomain | None:
    """What an arc of a network must have; None: nothing."""
    if arc.minimum <= arc.whole_or_none:
        return None
    pods = _counted(arc, rules)
    return MinPerDomain(arc.name, *pods, arc.minimum, arc.whole_or_none, arc.nodes, arc.beside)


def _counted(arc: LimitedArc, rules: NetworkRules) -> tuple[str, tuple[LabelSelector, ...], LabelSelector | None]:
    """In which domains an arc counts which pods."""
    return arc.topology_key, arc.selectors, rules.namespaces


def _with_constraints(signature: PodSignature, constraints: InterPodConstraints) -> PodSignature:
    rules = None if constraints == InterPodConstraints() else constraints
    return msgspec.structs.replace(signature, constraints=rules)


def limits_for(labels: Labels, policy: Policy) -> tuple[MaxPerDomain, ...]:
    """The limits that hold for a governed pod with these labels."""
    namespaces = policy.selects.namespaces
    limits = []
    for constraint in policy.constraints:
        name = display_name(constraint, policy)
        for key, selectors, most in _limits(constraint, labels):
            limits.append(MaxPerDomain(name, key, selectors, namespaces, most))
    return tuple(limits)


def all_or_none(labels: Labels, policy: Policy) -> bool:
    """Whether a constraint places a governed pod with these labels together with others or not at all."""
    return any(constraint.pods.matches(labels) for constraint in all_or_none_constraints(policy))


def all_or_none_constraints(policy: Policy) -> Iterator[OneDomain | Global]:
    """Constraints whose pods are placed together or not at all."""
    for constraint in policy.constraints:
        if isinstance(constraint, OneDomain) or (isinstance(constraint, Global) and constraint.all_or_none):
            yield constraint


def display_name(constraint: Constraint, policy: Policy) -> str:
    """A constraint as its users know it."""
    return f"constraint {constraint.name} of policy {policy.name}"


def reasons_nothing_fits(constraint: Constraint, policy: Policy) -> Iterator[str]:
    """Why a constraint admits no pod at all, whatever the cluster; a sentence for each field that says so."""
    fields = []
    if isinstance(constraint, Conflict | Exclusive):
        fields.append(("maxPerDomain", constraint.max_per_domain))
    if isinstance(constraint, Exclusive):
        fields.append(("maxPlaced", constraint.max_placed))
    for field, most in fields:
        if most == 0:
            yield f"{display_name(constraint, policy)} lets no pod in: its {field} is 0"


def limits_of(constraint: Constraint) -> Iterator[tuple[str, tuple[LabelSelector, ...], int]]:
    """Limits that hold for all pods of a constraint: topology key ("": the cluster), pods that count, how many."""
    match constraint:
        case Conflict():
            yield constraint.topology_key, (constraint.pods,), constraint.max_per_domain
        case Exclusive():
            if constraint.max_per_domain is not None:
                yield constraint.topology_key, constraint.groups, constraint.max_per_domain
            if constraint.max_placed is not None:
                yield "", constraint.groups, constraint.max_placed
        case Global():
            yield HOSTNAME, (constraint.pods,), 1
        case OneDomain():
            pass


def _limits(constraint: Constraint, labels: Labels) -> Iterator[tuple[str, tuple[LabelSelector, ...], int]]:
    """The limits of a constraint for a governed pod with these labels."""
    if not any(selector.matches(labels) for selector in selectors_of(constraint)):
        return
    if isinstance(constraint, Exclusive):
        for position, group in enumerate(constraint.groups):
            if group.matches(labels):
                yield constraint.topology_key, constraint.groups[:position] + constraint.groups[position + 1 :], 0
    yield from limits_of(constraint)


def selectors_of(constraint: Constraint) -> tuple[LabelSelector, ...]:
    """The pods of a constraint: any of the selectors selects them."""
    return constraint.groups if isinstance(constraint, Exclusive) else (constraint.pods,)


def _allowed_nodes(labels: Labels, policy: Policy) -> tuple[AllowedNodes, ...]:
    return tuple(
        AllowedNodes(display_name(constraint, policy), (NodeSelectorTerm(constraint.nodes.requirements),))
        for constraint in policy.constraints
        if isinstance(constraint, Global) and constraint.nodes.requirements and constraint.pods.matches(labels)
    )
