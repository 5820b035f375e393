"""Topology spread constraints as a score: ScheduleAnyway.

Source: kube-scheduler plugins/podtopologyspread/scoring.go. Pods without constraints have those of their policy
(model/default_spread.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable
from flowcore.model.inter_pod_constraints import HOSTNAME
from flowcore.model.pod_index import PodIndex, PodSignature, SpreadMatch
from flowcore.model.pods import PodClass
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.domains import Domains
from flowcore.rules.topology.spread import CountedNodes


@dataclass(frozen=True, slots=True)
class SpreadScore:
    """How many pods nodes share their domains with, by the constraints of one pod.

    Attributes:
        raw: float64[N], pods in the node's domains, each times the weight of its constraint.
        unlabelled: bool[N], nodes without the label of some constraint that needs it: the last choice.
        weights: what a pod in the node's domain counts, for each constraint.
    """

    raw: NDArray[np.float64]
    unlabelled: Bools
    weights: tuple[float, ...]

    @property
    def score(self) -> Int64s:
        """int64[N]: rounded; 0 for unlabelled nodes."""
        rounded: Int64s = np.floor(self.raw + 0.5).astype(np.int64)  # as Go rounds what is a whole number or above zero
        rounded[self.unlabelled] = 0
        return rounded

    def with_added(self, pods: Sequence[Int64s]) -> SpreadScore:
        """The score with more pods: for each constraint, int64[N] pods that came into each node's domain."""
        added = np.zeros(len(self.raw))
        for weight, count in zip(self.weights, pods, strict=True):
            added += weight * count
        return replace(self, raw=self.raw + added)


def spread_score(
    pod_class: PodClass, signature: PodSignature, pod_index: PodIndex, table: NodeTable, allowed: Bools
) -> SpreadScore | None:
    """The score of the pod's ScheduleAnyway constraints, the less the better; None for a pod without.

    ::

        score = sum over constraints of: pods in the domain * ln(domains + 2) + maxSkew - 1

    Nodes without the label of a constraint count as one domain more of it if they are not put last, and a constraint
    costs nothing there.

    Args:
        allowed: bool[N], nodes that the pod may use; only their domains count.
    """
    constraints = signature.constraints.soft_spread if signature.constraints is not None else ()
    if not constraints:
        return None
    counted_nodes = CountedNodes(constraints, pod_class, table)
    usable = allowed & counted_nodes.labelled
    score = np.zeros(len(table.nodes), dtype=np.float64)
    weights = []
    for constraint in constraints:
        # Of the topology of hostnames kube-scheduler counts the pods on the node itself, whatever its label.
        if constraint.topology_key == HOSTNAME:
            domains, counted = Domains.single_nodes(table), None
        else:
            domains, counted = Domains.unordered(constraint.topology_key, table), counted_nodes(constraint)
        used = np.zeros(domains.count + 1, dtype=np.bool_)
        used[domains.codes[usable]] = True
        weights.append(float(np.log(int(used.sum()) + 2)))
        matching_pods = pod_index.matching_pods(SpreadMatch(signature.namespace, constraint.selector))
        cost = np.full(len(score), float(constraint.max_skew - 1))
        if matching_pods:
            cost += weights[-1] * DomainCounter.of(matching_pods, domains, counted, table).initial_by_node
        if not constraint.needs_all_labels:
            cost *= table.column(constraint.topology_key).labelled
        score += cost
    return SpreadScore(score, ~counted_nodes.labelled, tuple(weights))
