"""Whether changes since a plan was made break the rules between pods for one of its placements.

A plan holds for the state that it was made from. Until it is carried out, others may have placed pods, pods may have
left, nodes may have changed. Only those changes are looked at, so that the check costs next to nothing if none of them
concerns the pod. It may report a conflict although the placement is still legal (another pod of the group is left
nearby, another domain is as empty). It never misses a change that breaks a rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints
from flowcore.model.matching_pods import MatchingPods
from flowcore.model.nodes import Node
from flowcore.model.pod_index import AffinityMatch, PodIndex, PodSignature, SpreadMatch
from flowcore.model.selectors import Labels, value_of
from flowcore.rules.topology.affinity import affinity_matches_itself
from flowcore.rules.topology.domain_limits import counts_itself, limit_match, within_limit


@dataclass(slots=True)
class Drift:
    """What changed since a plan was made.

    Attributes:
        pods: pods that came (count above zero) and left (below) since, without those that the plan itself placed.
        nodes_before: nodes that changed since, as they were before; None for a new node.
        namespaces_changed: whether the labels of any namespace changed.
    """

    pods: PodIndex = field(default_factory=PodIndex)
    nodes_before: dict[str, Node | None] = field(default_factory=dict)
    namespaces_changed: bool = False

    def conflicts(
        self,
        signature: PodSignature,
        node: Node,
        nodes: Mapping[str, Node],
        pod_index: PodIndex,
        *,
        already_counted: bool = False,
    ) -> bool:
        """Whether a pod may no longer go to the node.

        Args:
            nodes: all nodes as they are now, by name.
            pod_index: all pods that have a node now, with those that the plan placed so far.
            already_counted: the pod itself is among those, on this node.
        """
        check = _Check(self, signature, dict(node.labels), nodes, pod_index)
        if check.near_added_pods(self.pods.anti_affinity_terms_for(signature)):
            return True
        constraints = signature.constraints
        if constraints is not None and (
            check.exceeds_limits(constraints, already_counted=already_counted)
            or check.conflicts_with_own_terms(constraints)
        ):
            return True
        return (bool(self.nodes_before) or self.namespaces_changed) and check.conflicts_after_moves()


@dataclass
class _Check:
    """One pod that is to go to one node.

    Attributes:
        labels: of the node.
    """

    drift: Drift
    signature: PodSignature
    labels: Mapping[str, str]
    nodes: Mapping[str, Node]
    pod_index: PodIndex

    def near_added_pods(self, terms: Iterable[tuple[AffinityTerm, MatchingPods]]) -> bool:
        """Whether any pod came to the node's domain, in the topology of its term."""
        return any(
            change > 0 and self._shares(term.topology_key, name)
            for term, matching_pods in terms
            for name, change in matching_pods.by_node.items()
        )

    def conflicts_with_own_terms(self, constraints: InterPodConstraints) -> bool:
        """Whether pods that came or left concern the pod's own terms."""
        if constraints.unreadable_affinity or constraints.unreadable_spread:
            return True  # its demands are not known
        changes = self.drift.pods
        if self.near_added_pods(self._anti_affinity(constraints, changes)):
            return True
        if constraints.affinity:
            self_affinity = affinity_matches_itself(self.signature, constraints, changes.namespaces)
            for name, change in changes.matching_pods(AffinityMatch(constraints.affinity)).by_node.items():
                if change > 0 and not self_affinity:
                    continue
                near = [self._shares(term.topology_key, name) for term in constraints.affinity]
                # A pod that left may have been the only one nearby. After a pod came elsewhere, the first pod of the
                # group may no longer go anywhere.
                if any(near) if change < 0 else not all(near):
                    return True
        for constraint in constraints.spread:
            matching_pods = changes.matching_pods(SpreadMatch(self.signature.namespace, constraint.selector))
            # More pods here, or fewer in a domain that may have been the emptiest.
            for name, change in matching_pods.by_node.items():
                if (change > 0) == self._shares(constraint.topology_key, name):
                    return True
        return False

    def exceeds_limits(self, constraints: InterPodConstraints, *, already_counted: bool) -> bool:
        """Whether the pod is one too many for a limit; counted only where a change may have made it so."""
        for limit in constraints.limits:
            pod_match, key = limit_match(limit), limit.topology_key
            pods_now = self.pod_index.matching_pods(pod_match).by_node
            changes = self.drift.pods.matching_pods(pod_match).by_node
            if (
                self.drift.namespaces_changed
                or any(self._inside(key, name) for name in pods_now.keys() & self._moved)
                or any(change > 0 and self._inside(key, name) for name, change in changes.items())
            ):
                pods = sum(count for name, count in pods_now.items() if self._inside(key, name))
                itself = not already_counted and counts_itself(limit, self.signature, self.pod_index.namespaces)
                if not within_limit(pods, int(itself), limit.max_pods):
                    return True
        return False

    def conflicts_after_moves(self) -> bool:
        """Whether nodes and namespaces that changed bring pods that ran before into the node's domains."""
        if self._near_moved_pods(self.pod_index.anti_affinity_terms_for(self.signature)):
            return True
        constraints = self.signature.constraints
        if constraints is None:
            return False
        if self._near_moved_pods(self._anti_affinity(constraints, self.pod_index)):
            return True
        if constraints.affinity and (
            self.drift.namespaces_changed
            or self.pod_index.matching_pods(AffinityMatch(constraints.affinity)).by_node.keys() & self._moved
        ):
            return True
        keys = {constraint.topology_key for constraint in constraints.spread}
        return any(
            keys & (dict(_labels(before)).keys() | dict(_labels(self.nodes.get(name))).keys())
            for name, before in self.drift.nodes_before.items()
        )

    def _near_moved_pods(self, terms: Iterable[tuple[AffinityTerm, MatchingPods]]) -> bool:
        for term, matching_pods in terms:
            pods = matching_pods.by_node
            names = pods if self.drift.namespaces_changed else pods.keys() & self._moved
            if any(self._shares(term.topology_key, name) for name in names):
                return True
        return False

    @cached_property
    def _moved(self) -> set[str]:
        """Nodes that are in other domains than before, or new."""
        return {
            name
            for name, before in self.drift.nodes_before.items()
            if before is None or _labels(before) != _labels(self.nodes.get(name))
        }

    def _shares(self, key: str, name: str) -> bool:
        """Whether another node is in the node's domain."""
        # Asked of all nodes where pods came and left: no dict for each of them.
        value, node = self.labels.get(key), self.nodes.get(name)
        return value is not None and node is not None and value_of(node.labels, key) == value

    def _inside(self, key: str, name: str) -> bool:
        """The same for a limit, of which the domain without a key is the whole cluster."""
        return self._shares(key, name) if key else name in self.nodes

    @staticmethod
    def _anti_affinity(constraints: InterPodConstraints, pods: PodIndex) -> Iterable[tuple[AffinityTerm, MatchingPods]]:
        """The pod's own anti-affinity terms, each with the pods that it matches."""
        return ((term, pods.matching_pods(AffinityMatch((term,)))) for term in constraints.anti_affinity)


def _labels(node: Node | None) -> Labels:
    return () if node is None else node.labels
