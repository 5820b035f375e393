"""Whether what happened since a plan was made breaks the rules between pods for one of its placements.

A plan holds for the state that it was made from. By the time it is carried out others may have placed pods, pods
may have gone, nodes may have changed. This asks about those changes only, so that it costs next to nothing where none
of them concerns the pod. It may say yes where a placement would still do (another pod of the group is left nearby,
another domain is as empty); it never says no where the change breaks a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flowcore.filters import policy_constraints
from flowcore.filters.inter_pod_affinity import speaks_of_itself
from flowcore.model.neighbours import Alike, Crowd, Kind, Neighbours, Together
from flowcore.model.nodes import Node
from flowcore.model.rules import Rules
from flowcore.model.selectors import value_of


@dataclass(slots=True)
class Newer:
    """What a plan does not know.

    Attributes:
        pods: pods that came (above nothing) and went (below) since, but for those that the plan itself placed.
        nodes: nodes that changed since as they were then, None where there was none.
        namespaces: whether the labels of any changed.
    """

    pods: Neighbours = field(default_factory=Neighbours)
    nodes: dict[str, Node | None] = field(default_factory=dict)
    namespaces: bool = False

    def breaks(
        self, kind: Kind, node: Node, nodes: Mapping[str, Node], running: Neighbours, *, counted: bool = False
    ) -> bool:
        """Whether a pod of this kind may not go to the node any more.

        Args:
            nodes: all nodes as they are now, by name.
            running: all pods that have a node now, those among them that the plan placed so far.
            counted: the pod itself is among those, on this node.
        """
        here = dict(node.labels)

        def shares(key: str, name: str) -> bool:
            # Asked of all that came and went since: no dict for each of their nodes.
            value, other = here.get(key), nodes.get(name)
            return value is not None and other is not None and value_of(other.labels, key) == value

        def came(crowd: Crowd, key: str) -> bool:
            return any(by > 0 and shares(key, name) for name, by in crowd.by_node.items())

        if any(came(crowd, term.topology_key) for term, crowd in self.pods.repelled(kind)):
            return True
        if kind.rules is not None and self._exceeds(kind, kind.rules, shares, nodes, running, counted=counted):
            return True
        if kind.rules is not None and self._breaks_own(kind, kind.rules, came, shares):
            return True
        return self._moved(kind, shares, nodes, running)

    def _breaks_own(
        self, kind: Kind, rules: Rules, came: Callable[[Crowd, str], bool], shares: Callable[[str, str], bool]
    ) -> bool:
        if rules.unreadable_affinity or rules.unreadable_spread:
            return True  # what it demands is not known
        if any(came(self.pods.crowd(Together((term,))), term.topology_key) for term in rules.anti_affinity):
            return True
        if rules.affinity:
            first = speaks_of_itself(kind, rules, self.pods)
            for name, by in self.pods.crowd(Together(rules.affinity)).by_node.items():
                if by > 0 and not first:
                    continue
                near = [shares(term.topology_key, name) for term in rules.affinity]
                # One that went may have been the only one near. One that came far off ends the liberty of the first.
                if any(near) if by < 0 else not all(near):
                    return True
        for constraint in rules.spread:
            crowd = self.pods.crowd(Alike(kind.namespace, constraint.selector))
            # More here, or fewer in what may have been the emptiest domain.
            if any((by > 0) == shares(constraint.topology_key, name) for name, by in crowd.by_node.items()):
                return True
        return False

    def _exceeds(
        self,
        kind: Kind,
        rules: Rules,
        shares: Callable[[str, str], bool],
        nodes: Mapping[str, Node],
        running: Neighbours,
        *,
        counted: bool,
    ) -> bool:
        """Whether a limit has no room for it any more; counted where a change may have taken it."""
        moved = self._moved_nodes(nodes) if rules.limits else set()
        for limit in rules.limits:
            of, key = policy_constraints.description(limit), limit.topology_key

            def inside(name: str, key: str = key) -> bool:
                return shares(key, name) if key else name in nodes

            now = running.crowd(of).by_node
            came = (by > 0 and inside(name) for name, by in self.pods.crowd(of).by_node.items())
            if self.namespaces or any(map(inside, now.keys() & moved)) or any(came):
                there = sum(pods for name, pods in now.items() if inside(name))
                if there + (not counted and policy_constraints.counts_itself(limit, kind, running)) > limit.most:
                    return True
        return False

    def _moved_nodes(self, nodes: Mapping[str, Node]) -> set[str]:
        """Nodes that are in other domains than they were, or in any for the first time."""
        return {
            name for name, before in self.nodes.items() if before is None or _labels(before) != _labels(nodes.get(name))
        }

    def _moved(
        self, kind: Kind, shares: Callable[[str, str], bool], nodes: Mapping[str, Node], running: Neighbours
    ) -> bool:
        """What nodes and namespaces that changed mean for the pods that were there before."""
        if not self.nodes and not self.namespaces:
            return False
        moved = self._moved_nodes(nodes)

        def meets(crowd: Crowd, key: str) -> bool:
            names = crowd.by_node if self.namespaces else crowd.by_node.keys() & moved
            return any(shares(key, name) for name in names)

        if any(meets(crowd, term.topology_key) for term, crowd in running.repelled(kind)):
            return True
        rules = kind.rules
        if rules is None:
            return False
        if any(meets(running.crowd(Together((term,))), term.topology_key) for term in rules.anti_affinity):
            return True
        if rules.affinity and (self.namespaces or running.crowd(Together(rules.affinity)).by_node.keys() & moved):
            return True
        keys = {constraint.topology_key for constraint in rules.spread}
        return any(
            keys & (dict(_labels(before)).keys() | dict(_labels(nodes.get(name))).keys())
            for name, before in self.nodes.items()
        )


def _labels(node: Node | None) -> tuple[tuple[str, str], ...]:
    return () if node is None else node.labels
