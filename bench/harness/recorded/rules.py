"""Whether pods may be where they are: room, ports, nodes, affinity, anti-affinity, spread and limits of queues."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.recorded.objects import Cluster, Node, Pod, Spread, Term, holds, selects


@dataclass(frozen=True, slots=True)
class PlacedPods:
    """Pods with the node that each has, and which of them came with the plan."""

    cluster: Cluster
    pods: Sequence[tuple[Pod, str]]
    new: frozenset[str]

    def broken(self) -> Iterator[str]:
        """Sentences about what does not hold for those that came."""
        yield from self._nodes()
        yield from self.overcommitted()
        yield from self._apart()
        yield from self._together()
        yield from self._skewed()
        yield from self._beyond_limits()

    def _nodes(self) -> Iterator[str]:
        for pod, name in self.pods:
            if pod.key in self.new:
                node = self.cluster.nodes.get(name)
                if node is None:
                    yield f"{pod.key} is on {name}, which is not there"
                elif not may_use(pod, node):
                    yield f"{pod.key} may not use {name}"

    def overcommitted(self) -> Iterator[str]:
        """Of these, those about room and host ports."""
        there: dict[str, list[Pod]] = defaultdict(list)
        for pod, name in self.pods:
            there[name].append(pod)
        for name in sorted({name for pod, name in self.pods if pod.key in self.new}):
            node, pods = self.cluster.nodes.get(name), there[name]
            if node is None:
                continue
            asked = {resource for pod in pods if pod.key in self.new for resource in pod.requests}
            for resource in sorted(asked):
                total, room = sum(pod.requests.get(resource, 0) for pod in pods), node.allocatable.get(resource, 0)
                if total > room:
                    yield f"{name} gives {total / 1000:g} of {resource} and has {room / 1000:g}"
            ports = Counter(port for pod in pods for port in pod.ports)
            for pod in pods:
                if pod.key in self.new and any(ports[port] > 1 for port in pod.ports):
                    yield f"{pod.key} on {name}: another pod has its host port"

    def _by_term(self, field: str) -> Iterator[tuple[Term, list[tuple[Pod, str]], list[tuple[Pod, str]]]]:
        """Each term, the pods that have it and the pods that it selects, with their domains."""
        owners: dict[Term, list[tuple[Pod, str]]] = defaultdict(list)
        for pod, name in self.pods:
            for term in getattr(pod, field):
                owners[term].append((pod, self._domain(name, term.topology_key)))
        for term, those in owners.items():
            yield term, those, self._selected(term)

    def _selected(self, term: Term) -> list[tuple[Pod, str]]:
        return [(pod, self._domain(name, term.topology_key)) for pod, name in self.pods if self._is_selected(term, pod)]

    @staticmethod
    def _is_selected(term: Term | Spread, pod: Pod) -> bool:
        return pod.namespace == term.namespace and selects(term.selector, pod.labels)

    def _domain(self, node: str, key: str) -> str:
        known = self.cluster.nodes.get(node)
        return "" if known is None else known.labels.get(key, "")

    def _apart(self) -> Iterator[str]:
        for _, owners, selected in self._by_term("anti_affinity"):
            there: dict[str, list[Pod]] = defaultdict(list)
            for pod, domain in selected:
                there[domain].append(pod)
            for owner, domain in owners:
                for other in there.get(domain, ()) if domain else ():
                    if other is not owner and (owner.key in self.new or other.key in self.new):
                        yield f"{owner.key} and {other.key} must not both be in {domain}"

    def _together(self) -> Iterator[str]:
        for term, owners, selected in self._by_term("affinity"):
            for owner, domain in owners:
                if owner.key not in self.new:
                    continue
                others = [there for pod, there in selected if pod is not owner]
                first = not others and owner.namespace == term.namespace and selects(term.selector, owner.labels)
                if not domain or not (domain in others or first):
                    yield f"{owner.key} is in {domain or 'no domain'} without the pods that it must be near"

    def _skewed(self) -> Iterator[str]:
        owners: dict[Spread, list[tuple[Pod, str]]] = defaultdict(list)
        for pod, name in self.pods:
            if pod.key in self.new:
                for constraint in pod.spread:
                    owners[constraint].append((pod, self._domain(name, constraint.topology_key)))
        for constraint, those in owners.items():
            selected = [name for other, name in self.pods if self._is_selected(constraint, other)]
            for pod, domain in those:
                # Only nodes count that the pod's own node selector and affinity let it use (nodeAffinityPolicy: Honor).
                may = {
                    name: node.labels[constraint.topology_key]
                    for name, node in self.cluster.nodes.items()
                    if constraint.topology_key in node.labels and selects_node(pod, node)
                }
                counts = dict.fromkeys(may.values(), 0)
                for name in selected:
                    if name in may:
                        counts[may[name]] += 1
                if domain not in counts:
                    yield f"{pod.key} is in no domain of {constraint.topology_key}"
                elif counts[domain] - min(counts.values()) > constraint.max_skew:
                    yield f"{pod.key}: {constraint.topology_key} {domain} has {counts[domain]}, and others have less"

    def _beyond_limits(self) -> Iterator[str]:
        for queue in self.cluster.queues:
            pods = [pod for pod, _ in self.pods if self.cluster.queue_of(pod) == queue.name]
            asked = {resource for pod in pods if pod.key in self.new for resource in pod.requests}
            for resource, limit in queue.limit.items():
                total = sum(pod.requests.get(resource, 0) for pod in pods)
                if resource in asked and total > limit:
                    yield f"queue {queue.name} uses {total / 1000:g} of {resource}, and its limit is {limit / 1000:g}"


def may_use(pod: Pod, node: Node) -> bool:
    """Whether taints, node selector and node affinity let a pod use a node."""
    if node.unschedulable:
        return False
    for taint in node.taints:
        if taint["effect"] in ("NoSchedule", "NoExecute") and not any(
            _tolerates(each, taint) for each in pod.tolerations
        ):
            return False
    return selects_node(pod, node)


def selects_node(pod: Pod, node: Node) -> bool:
    """Whether the pod's node selector and node affinity select a node."""
    if any(node.labels.get(key) != value for key, value in pod.node_selector.items()):
        return False
    return pod.node_terms is None or any(
        all(holds(each, node.labels) for each in term.get("matchExpressions", ())) for term in pod.node_terms
    )


def _tolerates(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", "")
