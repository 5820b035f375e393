"""Reports of all nodes, indexed: which nodes hold an image, and the bandwidth measured on each node.

A report changes with every image that a kubelet pulls. So reports are kept beside the node table, which stays as it is.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from flowcore.model.nodes import Node, Report

_NOBODY = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float64)
#: Images whose holders are cached as arrays; 12,500 holders take 200 kB.
_MOST_IMAGES = 1_000


class Reports:
    """The reports of nodes, by name; kept up to date by ``put``."""

    def __init__(self) -> None:
        self._reports: dict[str, Report] = {}
        #: Numbers of nodes: four bytes for each image of a node, of which there are millions. A node that comes takes
        #: the number of one that went.
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._free_numbers: list[int] = []
        #: Image name -> bytes -> numbers of the nodes that hold it.
        self._holders: dict[str, dict[int, array[int]]] = {}
        # Caches for one node table; another table has another index.
        self._index: Mapping[str, int] | None = None
        self._arrays: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
        self._measured: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> Reports:
        """The reports of these nodes."""
        reports = cls()
        for node in nodes:
            reports.put(node.name, node.report)
        return reports

    def put(self, node: str, report: Report | None) -> None:
        """Takes the newest report of a node; None: the node is gone."""
        self._measured = None
        before = self._reports.pop(node, None)
        old, new = (set(() if each is None else dict(each.images).items()) for each in (before, report))
        if report is not None and report != Report():
            self._reports[node] = report
            if before is None:
                self._number(node)
        for name, size in old - new:
            self._arrays.pop(name, None)
            sizes = self._holders[name]
            sizes[size].remove(self._numbers[node])
            if not sizes[size]:
                del sizes[size]
                if not sizes:
                    del self._holders[name]
        for name, size in new - old:
            self._arrays.pop(name, None)
            self._holders.setdefault(name, {}).setdefault(size, array("i")).append(self._numbers[node])
        if before is not None and node not in self._reports:
            self._free_numbers.append(self._numbers.pop(node))

    def _number(self, node: str) -> None:
        if self._free_numbers:
            number = self._free_numbers.pop()
            self._names[number] = node
        else:
            number = len(self._names)
            self._names.append(node)
        self._numbers[node] = number

    def items(self) -> Iterable[tuple[str, Report]]:
        """Node name and report of each node whose report is not empty."""
        return self._reports.items()

    def holders(self, image: str, index: Mapping[str, int]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Nodes of ``index`` (NodeTable.index) that hold an image: int64[K] positions and float64[K] bytes."""
        self._ask_for(index)
        holders = self._holders.get(image)
        if holders is None:
            return _NOBODY  # pods may name any image: misses are not cached
        arrays = self._arrays.get(image)
        if arrays is None:
            held = ((self._names[number], size) for size, numbers in holders.items() for number in numbers)
            present = [(index[node], size) for node, size in held if node in index]
            positions = np.array([row for row, _ in present], dtype=np.int64)
            arrays = self._arrays[image] = positions, np.array([size for _, size in present], dtype=np.float64)
        return arrays

    def bandwidth(self, index: Mapping[str, int]) -> NDArray[np.float64]:
        """float64[len(index)]: bits per second measured on each node; 0 where none was measured."""
        self._ask_for(index)
        if self._measured is None:
            self._measured = np.zeros(len(index), dtype=np.float64)
            for node, report in self._reports.items():
                if report.bandwidth is not None and node in index:
                    self._measured[index[node]] = report.bandwidth
        return self._measured

    def _ask_for(self, index: Mapping[str, int]) -> None:
        # Images that no pod asks for any more are dropped with the table, or when there are very many.
        if self._index is not index or len(self._arrays) > _MOST_IMAGES:
            self._index, self._measured = index, None
            self._arrays.clear()
