"""What all nodes report of themselves, found by what is asked: who holds an image, what was measured on a node.

It changes with every image that a kubelet pulls, so it is kept beside the node table, which need not be made anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from flowcore.model.nodes import Node, Report


class Reports:
    """The reports of nodes, by name; kept up to date by ``put``."""

    def __init__(self) -> None:
        self._reports: dict[str, Report] = {}
        #: Image name -> node name -> bytes.
        self._holders: dict[str, dict[str, int]] = {}
        self._measured: tuple[Mapping[str, int], NDArray[np.float64]] | None = None

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> Reports:
        """The reports of these nodes."""
        found = cls()
        for node in nodes:
            found.put(node.name, node.report)
        return found

    def put(self, node: str, report: Report | None) -> None:
        """Takes a node's newest report; None: the node is gone."""
        self._measured = None
        before = self._reports.pop(node, None)
        for name, _ in before.images if before is not None else ():
            holders = self._holders.get(name, {})
            holders.pop(node, None)
            if not holders:
                self._holders.pop(name, None)
        if report is not None and report != Report():
            self._reports[node] = report
            for name, size in report.images:
                self._holders.setdefault(name, {})[node] = size

    def holders(self, image: str, index: Mapping[str, int]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Nodes of ``index`` (NodeTable.index) that hold an image: int64[K] positions and float64[K] bytes."""
        found = [(index[node], size) for node, size in self._holders.get(image, {}).items() if node in index]
        positions = np.array([at for at, _ in found], dtype=np.int64)
        return positions, np.array([size for _, size in found], dtype=np.float64)

    def bandwidth(self, index: Mapping[str, int]) -> NDArray[np.float64]:
        """float64[len(index)]: bits per second measured on each node, 0 where nothing was."""
        if self._measured is None or self._measured[0] is not index:
            found = np.zeros(len(index), dtype=np.float64)
            for node, report in self._reports.items():
                if report.bandwidth is not None and node in index:
                    found[index[node]] = report.bandwidth
            self._measured = (index, found)
        return self._measured[1]
