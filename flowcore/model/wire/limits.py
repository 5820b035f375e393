"""How much of each list in a pod's spec is planned with.

An author may write as much into a pod as the API server stores, and a round's work grows with each entry, for most of
them on each node. Beyond these limits a pod is not planned; nothing else waits for it. What it takes where it runs, and
its required anti-affinity, count all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from flowcore.model.wire.pod_objects import WireAffinity, WirePodAffinity, WirePodSpec
from flowcore.model.wire.selectors import WireLabelSelector, WireNodeSelectorTerm, WireRequirement

#: Of all labels of a pod, keys and values. Kubernetes limits each, but not how many there are.
MOST_LABEL_BYTES: Final = 16_384
MOST_SPREAD_CONSTRAINTS: Final = 64
#: Required and preferred terms of node affinity, pod affinity and pod anti-affinity together.
MOST_AFFINITY_TERMS: Final = 256
#: Requirements of all selectors in affinity and spread constraints together, and values and namespaces in them.
MOST_REQUIREMENTS: Final = 1_024
MOST_VALUES: Final = 4_096
MOST_NODE_SELECTOR_LABELS: Final = 256
#: Distinct names, over all containers.
MOST_RESOURCES: Final = 64
MOST_TOLERATIONS: Final = 256
MOST_CONTAINERS: Final = 256
MOST_HOST_PORTS: Final = 256
MOST_VOLUMES: Final = 256
MOST_RESOURCE_CLAIMS: Final = 256


class OverLimit(msgspec.Struct, frozen=True):
    """A list that is too long: the field, how long it is, and how long it may be."""

    field: str
    count: int
    most: int
    unit: str = "entries"

    def __str__(self) -> str:
        return f"{self.field}: {self.count} {self.unit}, at most {self.most} are planned"


def over_limit(spec: WirePodSpec, labels: Mapping[str, str]) -> OverLimit | None:
    """The first list of a pod that is too long, None where all is well."""
    nbytes = sum(map(len, labels)) + sum(map(len, labels.values()))
    if nbytes > MOST_LABEL_BYTES:
        return OverLimit("metadata.labels", nbytes, MOST_LABEL_BYTES, "bytes")
    for field, count, most in _counts(spec):
        if count > most:
            return OverLimit(field, count, most)
    return None


def _counts(spec: WirePodSpec) -> Iterator[tuple[str, int, int]]:
    spread, affinity = spec.topology_spread_constraints, spec.affinity
    containers = (spec.init_containers or []) + (spec.containers or [])
    yield "spec.containers", len(containers), MOST_CONTAINERS
    yield "spec.containers.resources.requests", _resources(spec), MOST_RESOURCES
    ports = sum(bool(port.host_port) for each in containers for port in each.ports or ())
    yield "spec.containers.ports.hostPort", ports, MOST_HOST_PORTS
    yield "spec.tolerations", len(spec.tolerations or ()), MOST_TOLERATIONS
    yield "spec.nodeSelector", len(spec.node_selector or ()), MOST_NODE_SELECTOR_LABELS
    yield "spec.volumes", len(spec.volumes or ()), MOST_VOLUMES
    yield "spec.resourceClaims", len(spec.resource_claims or ()), MOST_RESOURCE_CLAIMS
    if spread:
        yield "spec.topologySpreadConstraints", len(spread), MOST_SPREAD_CONSTRAINTS
        of_spread = [_of_labels(each.label_selector) for each in spread]
        keys = sum(len(each.match_label_keys or ()) for each in spread)
        yield "spec.topologySpreadConstraints.labelSelector", sum(n for n, _ in of_spread) + keys, MOST_REQUIREMENTS
        yield "spec.topologySpreadConstraints.labelSelector.values", sum(n for _, n in of_spread), MOST_VALUES
    if affinity is not None:
        sizes = list(_of_affinity(affinity))
        yield "spec.affinity", len(sizes), MOST_AFFINITY_TERMS
        yield "spec.affinity.matchExpressions", sum(n for n, _ in sizes), MOST_REQUIREMENTS
        yield "spec.affinity.matchExpressions.values", sum(n for _, n in sizes), MOST_VALUES


def _resources(spec: WirePodSpec) -> int:
    lists = [
        each.resources.requests for each in (*(spec.containers or ()), *(spec.init_containers or ())) if each.resources
    ]
    lists += [spec.resources.requests if spec.resources else None, spec.overhead]
    most = sum(len(each) for each in lists if each)
    # Most pods have few in all: their names need not be compared.
    return most if most <= MOST_RESOURCES else len(set().union(*(each for each in lists if each)))


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
    for term in (*(side.required or ()), *(each.pod_affinity_term for each in side.preferred or ())):
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
