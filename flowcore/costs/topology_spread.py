"""PodTopologySpread as a preference: ScheduleAnyway constraints, for the pods that run.

Source: kube-scheduler plugins/podtopologyspread/scoring.go. The constraints that kube-scheduler gives to pods without
any are not known here: they need Services and the owners of pods.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowcore.filters.pod_topology_spread import included
from flowcore.model.neighbours import Alike, Kind, Neighbours
from flowcore.model.pods import PodClass
from flowcore.model.rules import SpreadConstraint
from flowcore.model.snapshot import Bools, Int64s, NodeTable

#: The topology in which every node is a domain: pods are counted on the node itself, whatever else it is like.
HOSTNAME = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class Crowding:
    """How crowded nodes are with pods of a kind.

    Attributes:
        exact: float64[N], pods in the node's domains weighed with how many domains there are.
        lacking: bool[N], nodes without the label of some constraint: the last choice.
        weights: what a pod in the node's domain counts, for each constraint.
    """

    exact: NDArray[np.float64]
    lacking: Bools
    weights: tuple[float, ...]

    @property
    def score(self) -> Int64s:
        """int64[N]: rounded; 0 where ``lacking``."""
        rounded = np.sign(self.exact) * np.floor(np.abs(self.exact) + 0.5)  # away from zero, as Go rounds
        return np.where(self.lacking, 0, rounded.astype(np.int64))


def crowding(
    pod_class: PodClass, kind: Kind, neighbours: Neighbours, table: NodeTable, allowed: Bools
) -> Crowding | None:
    """How crowded nodes are by the pod's ScheduleAnyway constraints, the less the better; None for a pod without.

    ::

        score = sum over constraints of: pods in the domain * ln(domains + 2) + maxSkew - 1

    Args:
        allowed: bool[N], nodes that the pod may use; only their domains count.
    """
    constraints = kind.rules.soft_spread if kind.rules is not None else ()
    if not constraints:
        return None
    labelled = np.ones(len(table.nodes), dtype=np.bool_)
    for constraint in constraints:
        labelled &= table.column(constraint.topology_key).codes >= 0
    score = np.zeros(len(table.nodes), dtype=np.float64)
    weights = []
    for constraint in constraints:
        column = table.column(constraint.topology_key)
        there = _on_nodes(constraint, kind, neighbours, table)
        if constraint.topology_key == HOSTNAME:
            domains, count = int((allowed & labelled).sum()), there
        else:
            used = np.zeros(len(column.values) + 1, dtype=np.bool_)
            used[column.codes[allowed & labelled]] = True
            domains = int(used.sum())
            counted = labelled & included(constraint, pod_class, table)
            sums: Int64s = np.zeros(len(column.values) + 1, dtype=np.int64)
            np.add.at(sums, column.codes[counted], there[counted])
            count = sums[column.codes]
        weights.append(float(np.log(domains + 2)))
        score += count * weights[-1] + (constraint.max_skew - 1)
    return Crowding(score, ~labelled, tuple(weights))


def _on_nodes(constraint: SpreadConstraint, kind: Kind, neighbours: Neighbours, table: NodeTable) -> Int64s:
    """int64[N]: pods that the constraint counts."""
    there: Int64s = np.zeros(len(table.nodes), dtype=np.int64)
    nodes, counts = neighbours.crowd(Alike(kind.namespace, constraint.selector)).on(table.index)
    np.add.at(there, nodes, counts)
    return there
