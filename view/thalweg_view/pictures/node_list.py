"""The nodes of a picture: the round's own, if it has any, else the nodes of the newest state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from flowcore.model.errors import ModelError
from flowcore.model.resources import PODS, Amounts
from flowcore.model.selectors import value_of
from flowcore.planning.plan_document import PlanDocument, PlanNode
from thalweg_view.view_data import ViewData

#: Words for labels that most clusters have; their keys are tried in this order, then any key with this last part.
_WORDS: Final = {
    "zone": ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    "rack": ("topology.kubernetes.io/rack",),
}
#: Taints of a node that is not ready, and of one that is not heard of.
_NOT_READY: Final = ("node.kubernetes.io/not-ready:", "node.kubernetes.io/unreachable:")
#: A label with more values than this groups nothing that a picture could show.
_MAX_DOMAINS: Final = 1000


def nodes_of(data: ViewData, plan: PlanDocument | None) -> list[PlanNode]:
    """The nodes in their order."""
    if plan is not None and plan.nodes is not None:
        return plan.nodes
    cluster = data.scenario.cluster
    rows = []
    for node in cluster.nodes.values():
        usage = cluster.occupancy.usage_of(node.name)
        rows.append(PlanNode.of(node, tuple(usage.amounts.items()), usage.pods))
    return rows


def is_not_ready(node: PlanNode) -> bool:
    """Whether the node controller says by a taint that the node is not ready, or does not answer."""
    return any(each.startswith(_NOT_READY) for each in node.taints)


def planned_pods(data: ViewData, plan: PlanDocument) -> Iterator[tuple[str, Amounts]]:
    """Node and requests of each placement that the nodes do not count as used yet."""
    waiting, classes, pending = data.scenario.cluster.waiting, plan.classes, plan.pending
    for placement in plan.placements:
        pod = pending[placement.pod]
        if plan.nodes is not None or pod.key in waiting:
            yield placement.node, classes[pod.pod_class].requests


def planned_usage(data: ViewData, plan: PlanDocument | None) -> dict[str, Counter[str]]:
    """What the plan adds on each node, by name of the node and resource; the resource ``pods`` counts the pods."""
    usage: dict[str, Counter[str]] = {}
    for node, requests in planned_pods(data, plan) if plan is not None else ():
        sums = usage.setdefault(node, Counter())
        sums[PODS] += 1
        for resource, amount in requests:
            sums[resource] += amount
    return usage


def label_of(word: str, nodes: Iterable[PlanNode]) -> str:
    """The label that groups nodes by a word ("zone", "rack") or is named itself; "": no node has such a label.

    Raises:
        ModelError: no node has the label that is named.
    """
    keys = {key for node in nodes for key, _ in node.labels}
    for key in (*_WORDS.get(word, ()), word):
        if key in keys:
            return key
    label = min((key for key in keys if key.rpartition("/")[2] == word), default="")
    if not label and word not in _WORDS:
        raise ModelError("by", f'no node has the label "{word}"')
    return label


def grouping_labels(nodes: list[PlanNode]) -> list[str]:
    """Keys of labels that put several nodes into one of several groups, sorted."""
    values: dict[str, set[str]] = {}
    for node in nodes:
        for key, value in node.labels:
            values.setdefault(key, set()).add(value)
    return sorted(
        key for key, label_values in values.items() if 1 < len(label_values) <= min(_MAX_DOMAINS, len(nodes) - 1)
    )


def domain_of(node: PlanNode, label: str) -> str:
    """A node's value of a label; "" if it has none."""
    return (value_of(node.labels, label) or "") if label else ""
