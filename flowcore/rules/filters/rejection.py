"""The answer of a filter, and what it reads for it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from flowcore.cluster.arrays.snapshot import Bools
from flowcore.model.matching_pods import MatchingPods


@dataclass(frozen=True, slots=True)
class Rejection:
    """Nodes that a filter rejects, and why.

    Attributes:
        reason: kube-scheduler's text.
        nodes: bool[N].
    """

    reason: str
    nodes: Bools


@dataclass(frozen=True, slots=True)
class FilterInputs:
    """What a filter reads of a class, and of the cluster for that class.

    Attributes:
        class_key: classes for which this is equal get equal verdicts.
        matching_pods: running pods that its verdict depends on.
        label_keys: node labels on which its verdict on other nodes depends; () for a filter that reads each node alone.
        reads_taints: whether a taint of one node may change its verdict on others.
    """

    class_key: Hashable
    matching_pods: tuple[MatchingPods, ...] = ()
    label_keys: tuple[str, ...] = ()
    reads_taints: bool = False
