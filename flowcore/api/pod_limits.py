"""Limits of the lists in a pod's spec.

The API server stores large pods, and the work of a round grows with each entry, mostly once per node. A pod beyond a
limit is not planned, and no other pod waits for it. Its usage still counts. Of its required anti-affinity, others heed
as many terms as a planned pod may have: any author of pods may name the node itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from flowcore.api.pod_objects import WireAffinity, WirePodAffinity, WirePodAffinityTerm, WirePodSpec
from flowcore.api.selectors import WireLabelSelector, WireNodeSelectorTerm, WireRequirement

#: Keys and values of all labels of a pod. Kubernetes limits the length of each label, not their number.
MAX_LABEL_BYTES: Final = 16_384
MAX_SPREAD_CONSTRAINTS: Final = 64
#: Required and preferred terms of node affinity, pod affinity and pod anti-affinity together.
MAX_AFFINITY_TERMS: Final = 256
#: Requirements of all selectors in affinity and spread constraints together, and their values and namespaces.
MAX_REQUIREMENTS: Final = 1_024
MAX_VALUES: Final = 4_096
MAX_NODE_SELECTOR_LABELS: Final = 256
#: Distinct names over all containers.
MAX_RESOURCES: Final = 64
MAX_TOLERATIONS: Final = 256
MAX_CONTAINERS: Final = 256
MAX_HOST_PORTS: Final = 256
MAX_VOLUMES: Final = 256
MAX_RESOURCE_CLAIMS: Final = 256


class OverLimit(msgspec.Struct, frozen=True):
    """A list that is too long: its field, its length and its limit."""

    field: str
    count: int
    limit: int
    unit: str = "entries"

    def __str__(self) -> str:
        return f"{self.field}: {self.count} {self.unit}, at most {self.limit} are planned"


def over_limit(spec: WirePodSpec, labels: Mapping[str, str]) -> OverLimit | None:
    """The first list of a pod that is too long; None where none is."""
    nbytes = sum(map(len, labels)) + sum(map(len, labels.values()))
    if nbytes > MAX_LABEL_BYTES:
        return OverLimit("metadata.labels", nbytes, MAX_LABEL_BYTES, "bytes")
    for field, count, most in _counts(spec):
        if count > most:
            return OverLimit(field, count, most)
    return None


def planned_terms(terms: Sequence[WirePodAffinityTerm | None]) -> int:
    """How many of these terms, from the first on, a planned pod may have."""
    requirements = values = 0
    for position, (more_requirements, more_values) in enumerate(_sizes(terms[:MAX_AFFINITY_TERMS])):
        requirements, values = requirements + more_requirements, values + more_values
        if requirements > MAX_REQUIREMENTS or values > MAX_VALUES:
            return position
    return min(len(terms), MAX_AFFINITY_TERMS)


def _counts(spec: WirePodSpec) -> Iterator[tuple[str, int, int]]:
    spread, affinity = spec.topology_spread_constraints, spec.affinity
    containers = (spec.init_containers or []) + (spec.containers or [])
    yield "spec.containers", len(containers), MAX_CONTAINERS
    yield "spec.containers.resources.requests", _resources(spec), MAX_RESOURCES
    ports = sum(bool(port.host_port) for each in containers for port in each.ports or ())
    yield "spec.containers.ports.hostPort", ports, MAX_HOST_PORTS
    yield "spec.tolerations", len(spec.tolerations or ()), MAX_TOLERATIONS
    yield "spec.nodeSelector", len(spec.node_selector or ()), MAX_NODE_SELECTOR_LABELS
    yield "spec.volumes", len(spec.volumes or ()), MAX_VOLUMES
    yield "spec.resourceClaims", len(spec.resource_claims or ()), MAX_RESOURCE_CLAIMS
    if spread:
        yield "spec.topologySpreadConstraints", len(spread), MAX_SPREAD_CONSTRAINTS
        of_spread = [_of_labels(each.label_selector) for each in spread]
        keys = sum(len(each.match_label_keys or ()) for each in spread)
        yield "spec.topologySpreadConstraints.labelSelector", sum(n for n, _ in of_spread) + keys, MAX_REQUIREMENTS
        yield "spec.topologySpreadConstraints.labelSelector.values", sum(n for _, n in of_spread), MAX_VALUES
    if affinity is not None:
        # Counted first, so that the next list is known to be short.
        yield "spec.affinity", _terms(affinity), MAX_AFFINITY_TERMS
        sizes = list(_of_affinity(affinity))
        yield "spec.affinity.matchExpressions", sum(n for n, _ in sizes), MAX_REQUIREMENTS
        yield "spec.affinity.matchExpressions.values", sum(n for _, n in sizes), MAX_VALUES


def _resources(spec: WirePodSpec) -> int:
    lists = [
        container.resources.requests
        for container in (*(spec.containers or ()), *(spec.init_containers or ()))
        if container.resources
    ]
    lists += [spec.resources.requests if spec.resources else None, spec.overhead]
    most = sum(len(each) for each in lists if each)
    # Most pods have few names in all, which need not be compared.
    return most if most <= MAX_RESOURCES else len(set().union(*(each for each in lists if each)))


def _terms(affinity: WireAffinity) -> int:
    nodes = affinity.node_affinity
    lists: list[Sequence[object] | None] = []
    if nodes is not None:
        lists += [nodes.required.node_selector_terms if nodes.required else None, nodes.preferred]
    for side in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if side is not None:
            lists += [side.required, side.preferred]
    return sum(len(terms or ()) for terms in lists)


def _of_affinity(affinity: WireAffinity) -> Iterator[tuple[int, int]]:
    """Requirements and values of each term."""
    nodes = affinity.node_affinity
    if nodes is not None:
        for term in (nodes.required.node_selector_terms or ()) if nodes.required else ():
            yield _of_node_term(term)
        for preferred in nodes.preferred or ():
            yield _of_node_term(preferred.preference)
    for side in (affinity.pod_affinity, affinity.pod_anti_affinity):
        yield from _pod_terms(side or WirePodAffinity())


def _pod_terms(side: WirePodAffinity) -> Iterator[tuple[int, int]]:
    return _sizes((*(side.required or ()), *(each.pod_affinity_term for each in side.preferred or ())))


def _sizes(terms: Iterable[WirePodAffinityTerm | None]) -> Iterator[tuple[int, int]]:
    """Requirements and values of each term."""
    for term in terms:
        if term is None:
            yield 0, 0
            continue
        first, second = _of_labels(term.label_selector), _of_labels(term.namespace_selector)
        yield first[0] + second[0], first[1] + second[1] + len(term.namespaces or ())


def _of_node_term(term: WireNodeSelectorTerm | None) -> tuple[int, int]:
    if term is None:
        return 0, 0
    return _of_requirements((*(term.match_expressions or ()), *(term.match_fields or ())))


def _of_labels(selector: WireLabelSelector | None) -> tuple[int, int]:
    if selector is None:
        return 0, 0
    labels = len(selector.match_labels or ())
    count, values = _of_requirements(selector.match_expressions or ())
    return labels + count, labels + values


def _of_requirements(requirements: Iterable[WireRequirement]) -> tuple[int, int]:
    sizes = [len(each.values or ()) for each in requirements]
    return len(sizes), sum(sizes)
