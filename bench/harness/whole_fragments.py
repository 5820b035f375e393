"""FGD's measure where pods ask for whole GPUs: free GPUs that typical pods of a list could not use.

Source: "Beware of Fragmentation" (USENIX ATC 2023), sections 4 and 5. Typical pods are the most frequent ones that
together are 95 % of the list; pods without GPUs are among them, and can use no GPU. Shares of GPUs:
``harness.shared_gpus.fragments``.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flowcore.model.pods import PodClass
from harness.rechecks import Checker, Int64s

Float64s = NDArray[np.float64]

_TYPICAL: Final = 0.95


class WholeFragments:
    """The measure of nodes of a snapshot, whose waiting pods are the list.

    Args:
        gpu: the name of the resource.
    """

    def __init__(self, checker: Checker, gpu: str) -> None:
        self._checker, self._gpu = checker, checker.snapshot.resources.index(gpu)
        counts = Counter(pod.pod_class for pod in checker.snapshot.pending)
        typical, left = dict[PodClass, int](), _TYPICAL * counts.total()
        for kind, count in counts.most_common():
            if left > 0:
                typical[kind] = count
            left -= count
        self._wanted = np.array([checker.wanted(kind) for kind in typical])
        self._may = np.array([checker.allowed(kind) for kind in typical]) & (self._wanted[:, [self._gpu]] > 0)
        self._shares = np.array([*typical.values()]) / sum(typical.values())

    def rise(self, asked: PodClass, nodes: Int64s, free: Int64s) -> Float64s:
        """float64[C], how much the measure of each of these nodes rises with a pod of a class.

        Args:
            free: int64[N, R].
        """
        before = free[nodes]
        return self._of(before - self._checker.wanted(asked), nodes) - self._of(before, nodes)

    def _of(self, free: Int64s, nodes: Int64s) -> Float64s:
        """float64[C], the measure of nodes of which int64[C, R] is free."""
        asked = self._wanted.any(axis=0)
        fits = (free[:, np.newaxis, asked] >= self._wanted[:, asked]).all(axis=2) & self._may[:, nodes].T
        return free[:, self._gpu] * (~fits @ self._shares)
