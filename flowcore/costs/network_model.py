"""The seam between a round and a cost model that draws a network: the same value as ``spec.network`` of a policy.

A plug-in needs two things: a name, and a method ``network`` (``NetworkCostModel``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.costs.flat_potential import FlatPotential
from flowcore.costs.model import CostModel, Float64s, Load
from flowcore.costs.scale import OMEGA
from flowcore.model.cost_policy import CostWeights
from flowcore.model.networks import ArcCost, CostPart, NetworkArc, NetworkSpec, PodArc, PodEnd, Segment
from flowcore.model.nodes import Node
from flowcore.model.pod_index import ConstraintMatch
from flowcore.model.pods import PodClass
from flowcore.model.policies import Policy
from flowcore.model.selectors import Labels, LabelSelector, Requirement


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods of the round that are alike.

    Attributes:
        requests: what one pod asks for: millicores, bytes, counts.
    """

    namespace: str
    labels: Mapping[str, str]
    priority: int
    requests: Mapping[str, int]
    count: int


@dataclass(frozen=True)
class NetworkView:
    """What a model sees of the round as it begins.

    Attributes:
        policy: whose pods these are.
    """

    policy: Policy
    _snapshot: Snapshot = field(repr=False)

    @cached_property
    def pods(self) -> tuple[Pods, ...]:
        """The policy's pods that wait."""
        counts = Counter[tuple[str, Labels, PodClass]]()
        for pod in self._snapshot.pending:
            if pod.policy == self.policy.name:
                counts[pod.signature.namespace, pod.signature.labels, pod.pod_class] += 1
        return tuple(
            Pods(namespace, dict(labels), pod_class.priority, dict(pod_class.requests), count)
            for (namespace, labels, pod_class), count in counts.items()
        )

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes."""
        return self._snapshot.table.nodes

    def by_label(self, key: str) -> dict[str, list[Node]]:
        """The nodes by their value of a label, such as racks or zones; nodes without the label are in none."""
        column, nodes = self._snapshot.table.column(key), dict[str, list[Node]]()
        for node, code in zip(self.nodes, column.codes.tolist(), strict=True):
            if code >= 0:
                nodes.setdefault(column.values[code], []).append(node)
        return nodes

    def running(self, labels: Mapping[str, str]) -> dict[str, int]:
        """How many pods with these labels run on each node, or have it reserved, by the node's name; any namespace."""
        matching = self._snapshot.pod_index.matching_pods(ConstraintMatch((selector_of(labels),), None))
        rows, counts = matching.to_arrays(self._snapshot.table.index)
        on_nodes = Counter[str]()
        for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
            on_nodes[self.nodes[row].name] += count
        return on_nodes

    def taken(self, node: Node) -> float:
        """Which share of a node's cpu or memory is taken, of the two the larger; 0 for an empty node."""
        return float(self._taken[self._snapshot.table.index[node.name]]) / OMEGA

    @cached_property
    def _taken(self) -> Int64s:
        return utilisation(Load.of(self._snapshot, self.policy.cost.utilisation))


def utilisation(load: Load) -> Int64s:
    """int64[N], which share of each node's cpu or memory is taken, of the two the larger: 1000 for a full one."""
    shares: Float64s = (load.taken[:, :2] / np.maximum(load.capacity[:, :2], 1.0)).max(axis=1)
    return (OMEGA * shares).astype(np.int64)


@runtime_checkable
class NetworkModel(CostModel, Protocol):
    """A cost model that draws the network of its policies; the network alone decides about their pods."""

    def network(self, view: NetworkView) -> NetworkSpec:
        """The network of a round. Equal views give equal networks. An exception makes the policy's pods wait."""
        ...


def network_models(models: Mapping[str, CostModel]) -> frozenset[str]:
    """The names of those that draw a network."""
    return frozenset(name for name, model in models.items() if isinstance(model, NetworkModel))


class NetworkCostModel(FlatPotential, ABC):
    """Base of a NetworkModel: a subclass adds ``name`` and ``network``.

    What other pods of the cluster pay does not depend on it: its nodes have no potential.
    """

    name: ClassVar[str]

    @abstractmethod
    def network(self, view: NetworkView) -> NetworkSpec:
        """The network of one round; equal views give equal networks."""

    def arc_costs(self, pod_class: PodClass, size: Float64s, load: Load, weights: CostWeights) -> Int64s:  # noqa: ARG002
        """int64[N]: cost of the arc to each node."""
        return np.full(len(load.taken), OMEGA, dtype=np.int64)


# --- short forms for models ---


def selector_of(labels: Mapping[str, str]) -> LabelSelector:
    """Selects pods, or nodes, that have all of these labels."""
    return LabelSelector(tuple(Requirement(key, "In", (value,)) for key, value in sorted(labels.items())))


def arc_to(
    head: str,
    cost: int | Iterable[tuple[int, int | None]] = 0,
    *,
    part: CostPart | None = None,
    weight: int = 1,
    minimum: int = 0,
    maximum: int | None = None,
    gain: int | Fraction = 1,
    whole_or_none: bool = False,
) -> NetworkArc:
    """An arc to NODES, UNSCHEDULED, an aggregator or a node.

    Args:
        cost: of each unit, or segments: what one of them costs, and up to how many units.
    """
    segments = (Segment(cost),) if isinstance(cost, int) else tuple(Segment(*each) for each in cost)
    ratio = Fraction(gain).as_integer_ratio()
    return NetworkArc(head, ArcCost(segments, part, weight), minimum, maximum, ratio, whole_or_none)


def from_pods(selector: LabelSelector | Mapping[str, str], arc: NetworkArc, *, runs: bool = False) -> PodArc:
    """An arc of pods that wait, by their labels; ``runs``: of those that have a node, whoever governs them."""
    return PodArc(PodEnd(selector if isinstance(selector, LabelSelector) else selector_of(selector), runs), arc)
