"""Free volumes of one storage class over the nodes of a table: the smallest that each node has for a claim."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cached_property

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.model.quantities import whole_from_nanos
from flowcore.model.volumes import PersistentVolume


class FreeVolumes:
    """V volumes over N nodes; each volume has a place: by size, and then by name.

    Volumes of one affinity are a group: a node reaches all of a group or none. Most groups are the disks of one node,
    or all volumes that any node reaches.

    Attributes:
        volumes: in their order.
        places: the place of each, by name.
        memo: results for these volumes that filters cache.
    """

    def __init__(
        self, volumes: Sequence[PersistentVolume], rows_of: Callable[[PersistentVolume], Int64s], node_count: int
    ) -> None:
        """Of volumes in their order.

        Args:
            rows_of: gives int64[M], the rows of the nodes that reach a volume; asked once for each group.
        """
        self.volumes = tuple(volumes)
        self.places = {volume.name: place for place, volume in enumerate(volumes)}
        self.memo: dict[object, Bools] = {}
        self._sizes = [volume.size for volume in volumes]
        self._node_count = node_count
        groups: dict[object, list[int]] = {}
        for place, volume in enumerate(volumes):
            groups.setdefault(volume.affinity, []).append(place)
        nothing = np.zeros(0, dtype=np.int64)
        #: int64[V]: the places, one group after the other; and the group of each place.
        self._by_group = np.concatenate([nothing, *(np.array(members) for members in groups.values())])
        self._group_of = np.zeros(len(volumes), dtype=np.int64)
        self._group_of[self._by_group] = np.repeat(np.arange(len(groups)), [*map(len, groups.values())])
        self._group_count = len(groups)
        #: int64[P] twice, by row: which node reaches which group; and int64[N + 1], where the pairs of each node begin.
        rows = [rows_of(volumes[members[0]]) for members in groups.values()]
        row, group = np.concatenate([nothing, *rows]), np.repeat(np.arange(len(groups)), [*map(len, rows)])
        by_row = np.argsort(row, kind="stable")
        self._row, self._group = row[by_row], group[by_row]
        self._begins = np.searchsorted(self._row, np.arange(node_count + 1))

    @cached_property
    def sizes(self) -> Int64s:
        """int64[V]: bytes of each volume, by its place."""
        return np.array([whole_from_nanos(max(int(size), 0)) for size in self._sizes], dtype=np.int64)

    def place_of_size(self, size: Decimal) -> int:
        """The place of the first volume of this size or a larger one."""
        return bisect_left(self._sizes, size)

    def smallest(self, offered: Bools, taken: Sequence[Int64s] = ()) -> Int64s:
        """int64[N]: the place of the smallest volume that each node has; V where it has none.

        Args:
            offered: bool[V], volumes to choose from.
            taken: int64[N] each, a place that is taken on each node already.
        """
        none = len(self.volumes)
        places = self._by_group[offered[self._by_group]]
        group = self._group_of[places]
        # Of each group the first few are enough: no more than these can be taken.
        turn = np.arange(len(places)) - np.searchsorted(group, group)
        few = turn <= len(taken)
        first = np.full((self._group_count, len(taken) + 1), none, dtype=np.int64)
        first[group[few], turn[few]] = places[few]
        reached = first[self._group]
        for place in taken:
            reached[reached == place[self._row, np.newaxis]] = none
        smallest = np.full(self._node_count, none, dtype=np.int64)
        np.minimum.at(smallest, self._row, reached.min(axis=1))
        return smallest

    def smallest_at(self, row: int, offered: Bools) -> PersistentVolume | None:
        """The smallest volume that one node has, None where it has none; ``offered``: bool[V]."""
        reached = np.zeros(self._group_count, dtype=np.bool_)
        reached[self._group[self._begins[row] : self._begins[row + 1]]] = True
        places = np.flatnonzero(offered & reached[self._group_of])
        return self.volumes[places[0]] if len(places) else None
