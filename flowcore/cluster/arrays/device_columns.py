"""Devices that are one resource with a count in a round: columns of a snapshot beside its resources."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class DeviceColumns:
    """The last columns of a snapshot; each object is equal to itself alone.

    Attributes:
        names: of the columns, as pods of the round request them.
        later: the column for pods whose devices are not searched yet, of which no node has anything; "": there is none.
        invalid: bool[N], nodes with a pool from which nothing can be allocated.
        key: equal for the columns of one snapshot, whichever of its nodes they are of.
    """

    names: tuple[str, ...]
    later: str
    invalid: NDArray[np.bool_]
    key: object

    def of_nodes(self, rows: NDArray[np.int64]) -> DeviceColumns:
        """The columns of some nodes."""
        return replace(self, invalid=self.invalid[rows])
