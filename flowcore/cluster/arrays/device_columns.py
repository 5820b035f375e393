"""Resources of a round that nodes do not offer themselves: devices as columns, and extended resources by devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class DeviceColumns:
    """The last columns of a snapshot; each object is equal to itself alone.

    Attributes:
        names: of the columns, as pods of the round request them.
        later: columns of which no node has anything, for pods that wait for a later round, each with the reason.
        invalid: bool[N], nodes with a pool from which nothing can be allocated.
        key: equal for the columns of one snapshot, whichever of its nodes they are of.
        extended: extended resources that a DeviceClass backs, each with bool[N], the nodes that do not offer it: there
            pods need devices, and have as much of the resource as they like.
    """

    names: tuple[str, ...]
    later: Mapping[str, str]
    invalid: NDArray[np.bool_]
    key: object
    extended: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    def of_nodes(self, rows: NDArray[np.int64]) -> DeviceColumns:
        """The columns of some nodes."""
        extended = {name: nodes[rows] for name, nodes in self.extended.items()}
        return replace(self, invalid=self.invalid[rows], extended=extended)
