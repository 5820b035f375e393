"""Running pods as rules between pods see them: how many of each kind on each node.

Pods of one workload share namespace and labels, so a selector is asked once per kind, not once per pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flowcore.model.pods import Pod
from flowcore.model.selectors import Labels, LabelSelector
from flowcore.model.snapshot import Int64s, NodeTable


@dataclass(frozen=True, slots=True)
class Kin:
    """Pods that no rule can tell apart, on K nodes.

    Attributes:
        leaving: they are being deleted: spread passes them over, affinity does not.
        nodes: int64[K], positions in the node table, each once.
        counts: int64[K], how many run there.
    """

    namespace: str
    labels: Labels
    leaving: bool
    nodes: NDArray[np.int64]
    counts: Int64s


@dataclass(frozen=True, slots=True)
class Neighbours:
    """All pods that have a node of the table, and the labels of the namespaces that are known.

    What a selector selects is looked up when it is first asked for: pods of one workload bring the same one.
    """

    kins: tuple[Kin, ...]
    namespaces: Mapping[str, Labels]
    _selected: dict[LabelSelector, tuple[Kin, ...]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, pods: Iterable[Pod], table: NodeTable, namespaces: Mapping[str, Labels]) -> Neighbours:
        """Passes over pods that have ended, and pods on nodes that the table does not know."""
        found: dict[tuple[str, Labels, bool], Counter[int]] = {}
        for pod in pods:
            at = table.index.get(pod.node_name)
            if at is not None and not pod.terminal:
                found.setdefault((pod.namespace, pod.labels, pod.deleting), Counter())[at] += 1
        return cls(
            kins=tuple(
                Kin(*kind, np.array(list(on), dtype=np.int64), np.array(list(on.values()), dtype=np.int64))
                for kind, on in found.items()
            ),
            namespaces=namespaces,
        )

    def selected(self, selector: LabelSelector | None) -> tuple[Kin, ...]:
        """Pods with labels that the selector selects, in whatever namespace; no selector selects none."""
        if selector is None:
            return ()
        found = self._selected.get(selector)
        if found is None:
            found = self._selected[selector] = tuple(kin for kin in self.kins if selector.matches(kin.labels))
        return found
