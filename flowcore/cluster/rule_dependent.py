"""Waiting pods whose rules other pods may satisfy by coming."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowcore.model.inter_pod_constraints import InterPodConstraints


@dataclass(slots=True)
class RuleDependentPods:
    """Their keys.

    Attributes:
        keys: of all of them.
        by_node_labels: of those that a pod may satisfy by labels that it gets when it is bound.
    """

    keys: set[str] = field(default_factory=set)
    by_node_labels: set[str] = field(default_factory=set)

    def put(self, key: str, rules: InterPodConstraints | None) -> None:
        """Takes the rules of a waiting pod; None: it has none, or waits no more."""
        (self.keys.discard if rules is None or not (rules.affinity or rules.spread) else self.keys.add)(key)
        (self.by_node_labels.discard if rules is None or not rules.reads_node_labels else self.by_node_labels.add)(key)
