"""Pods of some description, by node."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat

import numpy as np
from numpy.typing import NDArray


class MatchingPods:
    """How many pods of some description run on each node.

    Attributes:
        by_node: node name -> pods, zeros left out. Pods of an index that was extended (``PodIndex.with_changes``) are
            not among them.
        created_revision: the revision of the ``PodIndex`` at which this was made.
        added_revision, removed_revision: the revision at which a pod last came, at which one last left. Where all three
            are the same, nothing has changed.
    """

    __slots__ = ("_arrays", "_base", "_index", "added_revision", "by_node", "created_revision", "removed_revision")

    def __init__(self, created_revision: int = 0, base: MatchingPods | None = None) -> None:
        self.by_node: dict[str, int] = {}
        self.created_revision = created_revision
        self.added_revision = self.removed_revision = 0
        self._base = base
        self._index: Mapping[str, int] | None = None
        self._arrays: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def change(self, node: str, delta: int, revision: int) -> None:
        """Adds ``count`` pods on a node; below zero: fewer."""
        if delta > 0:
            self.added_revision = revision
        else:
            self.removed_revision = revision
        self._add(node, delta)

    def add_existing(self, node: str, pods: int) -> None:
        """Counts pods that ran before it was made."""
        self._add(node, pods)

    def _add(self, node: str, delta: int) -> None:
        count = self.by_node.get(node, 0) + delta
        if count:
            self.by_node[node] = count
        else:
            self.by_node.pop(node, None)
        self._arrays = None

    def to_arrays(self, index: Mapping[str, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """int64[K] positions, int64[K] counts, of the nodes that ``index`` (NodeTable.index) knows; some come twice."""
        if self._arrays is None or self._index is not index:
            nodes = len(self.by_node)
            positions = np.fromiter(map(index.get, self.by_node, repeat(-1)), np.int64, nodes)
            counts = np.fromiter(self.by_node.values(), np.int64, nodes)
            known = positions >= 0
            self._arrays, self._index = (positions[known], counts[known]), index
        if self._base is None:
            return self._arrays
        positions, counts = self._base.to_arrays(index)
        positions = np.concatenate([positions, self._arrays[0]])
        counts = np.concatenate([counts, self._arrays[1]])
        if (self._arrays[1] < 0).any():
            # A node that the last pod has left must not be found.
            positions, place_of = np.unique(positions, return_inverse=True)
            sums = np.zeros(len(positions), dtype=np.int64)
            np.add.at(sums, place_of, counts)
            positions, counts = positions[sums != 0], sums[sums != 0]
        return positions, counts

    def __bool__(self) -> bool:
        return bool(self.by_node) or bool(self._base)
