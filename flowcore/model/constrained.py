"""A policy's constraints as rules of each pod that it governs.

All but ``OneDomain`` and ``all_or_none`` come to caps: at most so many pods of a description in a domain, each held by
the pods that it speaks of. Those two are gangs, and decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from flowcore.model.constraints import Conflict, Constraint, Exclusive, Global, OneDomain
from flowcore.model.neighbours import Kind
from flowcore.model.policies import Policy
from flowcore.model.rules import Limit, OnlyOn, Rules
from flowcore.model.selectors import Labels, LabelSelector

#: The label that says which node a node is, as in Kubernetes' own rules between pods.
HOSTNAME = "kubernetes.io/hostname"


def constrained(kind: Kind, policy: Policy) -> Kind:
    """The kind of a pod that the policy governs, with what its constraints demand among its rules.

    The same kind where they demand nothing. Rules that the kind has of a policy already are replaced.
    """
    rules = kind.rules or Rules()
    limits, only_on = limits_of(kind.labels, policy), _only_on(kind.labels, policy)
    if (rules.limits, rules.only_on, rules.contradiction) == (limits, only_on, ""):
        return kind
    found = msgspec.structs.replace(rules, limits=limits, only_on=only_on, contradiction="")
    return msgspec.structs.replace(kind, rules=None if found == Rules() else found)


def limits_of(labels: Labels, policy: Policy) -> tuple[Limit, ...]:
    """The caps that hold for a governed pod with these labels."""
    namespaces = policy.selects.namespaces
    found = []
    for constraint in policy.constraints:
        name = named(constraint, policy)
        for key, selectors, most in _caps(constraint, labels):
            found.append(Limit(name, key, selectors, namespaces, most))
    return tuple(found)


def all_or_none(labels: Labels, policy: Policy) -> bool:
    """Whether a constraint says of a governed pod with these labels that it is placed with others or not at all."""
    return any(constraint.pods.matches(labels) for constraint in gangs_of(policy))


def gangs_of(policy: Policy) -> Iterator[OneDomain | Global]:
    """Constraints whose pods are placed together or not at all."""
    for constraint in policy.constraints:
        if isinstance(constraint, OneDomain) or (isinstance(constraint, Global) and constraint.all_or_none):
            yield constraint


def named(constraint: Constraint, policy: Policy) -> str:
    """A constraint as its users know it."""
    return f"constraint {constraint.name} of policy {policy.name}"


def lets_nothing_in(constraint: Constraint, policy: Policy) -> Iterator[str]:
    """Why a constraint admits no pod at all, whatever the cluster; a sentence for each field that says so."""
    fields = []
    if isinstance(constraint, Conflict | Exclusive):
        fields.append(("maxPerDomain", constraint.most))
    if isinstance(constraint, Exclusive):
        fields.append(("maxPlaced", constraint.most_placed))
    for field, most in fields:
        if most == 0:
            yield f"{named(constraint, policy)} lets no pod in: its {field} is 0"


def _caps(constraint: Constraint, labels: Labels) -> Iterator[tuple[str, tuple[LabelSelector, ...], int]]:
    match constraint:
        case Conflict() if constraint.pods.matches(labels):
            yield constraint.topology_key, (constraint.pods,), constraint.most
        case Exclusive():
            mine = [at for at, group in enumerate(constraint.groups) if group.matches(labels)]
            for at in mine:
                others = constraint.groups[:at] + constraint.groups[at + 1 :]
                yield constraint.topology_key, others, 0
            if mine and constraint.most is not None:
                yield constraint.topology_key, constraint.groups, constraint.most
            if mine and constraint.most_placed is not None:
                yield "", constraint.groups, constraint.most_placed
        case Global() if constraint.pods.matches(labels):
            yield HOSTNAME, (constraint.pods,), 1
        case Conflict() | Global() | OneDomain():
            pass


def _only_on(labels: Labels, policy: Policy) -> tuple[OnlyOn, ...]:
    return tuple(
        OnlyOn(named(constraint, policy), constraint.nodes)
        for constraint in policy.constraints
        if isinstance(constraint, Global) and constraint.nodes.requirements and constraint.pods.matches(labels)
    )
