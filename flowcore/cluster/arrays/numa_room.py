"""What is free in the NUMA zones of nodes, and how many pods find one zone with room for them.

The kubelet of a node chooses the zone of a pod, in an order of its own, and no report says what it chose before the
next one comes. So a node may take pods only where each of them finds a zone whatever the kubelet chose for the others.
Either of two conditions suffices for that, in whatever order the pods come:

- all that they take would fit in one and the same zone; then the next pod fits in that zone;
- the zones hold as many pods of the largest size as there are pods: as long as one has not come, some zone holds fewer
  of the others than it could, so it has room for one more.

For pods of one size the second condition is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flowcore.model.numa import NO_CLAIMS, NumaClaims, NumaNeeds, NumaNode, items_of, largest_of, total_of
from flowcore.model.resources import Amounts

_Int64s = NDArray[np.int64]
_Bools = NDArray[np.bool_]

#: More pods than any node takes.
MANY: Final = 2**31 - 1
#: What is available of a resource that no zone of a node reports: the kubelet takes it from wherever it likes.
_UNREPORTED: Final = 2**62
#: Larger amounts count as this, so that no sum overflows.
_LARGEST: Final = 2**50
#: Sizes of pods whose vectors are kept.
_MOST_SIZES: Final = 2**14
#: Kinds of nodes: the kubelet takes any zones; it keeps each container in one; it keeps each pod in one.
_KINDS: Final = (NumaNode(""), NumaNode("", single=True), NumaNode("", single=True, pod_scope=True))


def _kind(node: NumaNode) -> int:
    return (1 + node.pod_scope) if node.single else 0


def _reported_row(node: NumaNode, columns: Mapping[str, int], zones: int) -> list[list[int]]:
    """[zones, R]: what is available in each zone of a node, and -1 for zones that it does not have."""
    reported = {name for zone in node.zones for name, _ in zone}
    default = [0 if name in reported else _UNREPORTED for name in columns]
    rows = [default.copy() for _ in node.zones]
    for row, zone in zip(rows, node.zones, strict=True):
        for name, amount in zone:
            row[columns[name]] = min(amount, _LARGEST)
    return rows + [[-1] * len(columns)] * (zones - len(rows))


@dataclass(frozen=True, slots=True, eq=False)
class _Size:
    """What one pod takes on nodes of a kind.

    Attributes:
        items: int64[I, R], what the kubelet keeps in one zone each, in order.
        largest, total: int64[R].
    """

    items: _Int64s
    largest: _Int64s
    total: _Int64s


@dataclass(slots=True, eq=False)
class NumaRoom:
    """K nodes with a report, of N; Z zones at most, R resources that any zone reports.

    Attributes:
        columns: column of each resource.
        rows: int64[N], row of each node; -1 without a report.
        kinds: int8[K], of the nodes.
        available: int64[K, Z, R], by the last report; -1 where a node has fewer zones.
        reported: bool[K, R], which resources any zone of a node reports.
        count: int64[K], pods or containers that the report may not show, and that the kubelet keeps in one zone each.
        largest: int64[K, R], the most that one of these takes.
        total, loose: int64[K, R], what pods take that the report may not show, and what of it several zones may give.
    """

    columns: Mapping[str, int]
    rows: _Int64s
    kinds: NDArray[np.int8]
    available: _Int64s
    reported: _Bools
    count: _Int64s
    largest: _Int64s
    total: _Int64s
    loose: _Int64s
    _sizes: dict[tuple[NumaNeeds, int], _Size] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, nodes: Mapping[str, tuple[NumaNode, NumaClaims]], index: Mapping[str, int]) -> NumaRoom:
        """The room of nodes, by name, each with its report and with what pods take that it does not show.

        Args:
            nodes: a report without zones is none.
            index: position of each node by name, as of ``NodeTable.index``; other nodes are passed over.
        """
        known = [(index[name], *entry) for name, entry in nodes.items() if name in index and entry[0].zones]
        zones = max((len(node.zones) for _, node, _ in known), default=0)
        names = {name for _, node, _ in known for zone in node.zones for name, _ in zone}
        columns = {name: column for column, name in enumerate(sorted(names))}
        rows = [_reported_row(node, columns, zones) for _, node, _ in known]
        shape = len(known), len(names)
        room = cls(
            columns=columns,
            rows=np.full(len(index), -1, dtype=np.int64),
            kinds=np.array([_kind(node) for _, node, _ in known], dtype=np.int8),
            available=np.array(rows, dtype=np.int64).reshape(len(known), zones, len(names)),
            reported=np.zeros(shape, dtype=np.bool_),
            count=np.array([claims.count for _, _, claims in known], dtype=np.int64),
            largest=np.zeros(shape, dtype=np.int64),
            total=np.zeros(shape, dtype=np.int64),
            loose=np.zeros(shape, dtype=np.int64),
        )
        room.rows[[node_row for node_row, _, _ in known]] = np.arange(len(known))
        if zones:
            room.reported[:] = (room.available[:, 0] >= 0) & (room.available[:, 0] < _UNREPORTED)
        for row, (_, _, claims) in enumerate(known):
            if claims != NO_CLAIMS:
                room._put_claims(row, claims)
        return room

    def put(self, node_row: int, node: NumaNode | None, claims: NumaClaims = NO_CLAIMS) -> bool:
        """Takes another report and other claims of the node at a position; None: it has no report any more.

        Returns:
            Whether it could. Else the node had no report, or has more zones or other resources than any node had: then
            the room must be built anew.
        """
        row = self.rows[node_row]
        if node is None or not node.zones:
            if row >= 0:
                self.kinds[row] = 0
            self.rows[node_row] = -1
            return True
        zones, names = self.available.shape[1], {name for zone in node.zones for name, _ in zone}
        if row < 0 or len(node.zones) > zones or not names <= self.columns.keys():
            return False
        self.kinds[row] = _kind(node)
        self.available[row] = _reported_row(node, self.columns, zones)
        self.reported[row] = [name in names for name in self.columns]
        self._put_claims(row, claims)
        return True

    def _put_claims(self, row: int, claims: NumaClaims) -> None:
        # What no zone of the node reports is not counted, as if no other node reported it either.
        reported = self.reported[row]
        self.count[row] = claims.count
        self.largest[row] = self._vector(claims.largest) * reported
        self.total[row] = self._vector(claims.total) * reported
        self.loose[row] = self._vector(claims.loose) * reported

    def _vector(self, amounts: Amounts) -> _Int64s:
        vector = np.zeros(len(self.columns), dtype=np.int64)
        for name, amount in amounts:
            if name in self.columns:
                vector[self.columns[name]] = min(amount, _LARGEST)
        return vector

    def copy(self) -> NumaRoom:
        """An independent copy, in which the same is taken."""
        return replace(
            self,
            count=self.count.copy(),
            largest=self.largest.copy(),
            total=self.total.copy(),
            loose=self.loose.copy(),
        )

    def of_nodes(self, nodes: _Int64s) -> NumaRoom:
        """The same for a part of the nodes, by position."""
        rows = self.rows[nodes]
        known = rows >= 0
        chosen = rows[known]
        return replace(
            self,
            rows=np.where(known, np.cumsum(known) - 1, -1),
            kinds=self.kinds[chosen],
            available=self.available[chosen],
            reported=self.reported[chosen],
            count=self.count[chosen],
            largest=self.largest[chosen],
            total=self.total[chosen],
            loose=self.loose[chosen],
        )

    @property
    def any_single(self) -> bool:
        """Whether any kubelet refuses pods that no single zone has room for."""
        return bool((self.kinds > 0).any())

    @property
    def unreported(self) -> _Bools:
        """bool[N]: nodes without a report."""
        return self.rows < 0

    # --- questions ---

    def counts(self, needs: NumaNeeds, nodes: _Int64s | None = None) -> _Int64s:
        """How many pods each node takes, all of them alike; MANY where zones do not matter.

        Args:
            nodes: int64[M], positions to answer for; None: all.

        Returns:
            int64[M].
        """
        rows = self.rows if nodes is None else self.rows[nodes]
        counts = np.full(len(rows), MANY, dtype=np.int64)
        if needs.everywhere:
            counts[rows < 0] = 0
        for kind in range(0 if needs.everywhere else 1, len(_KINDS)):
            alike = self._of_kind(rows, kind)
            if len(alike):
                counts[alike] = self._counts(self._size(needs, kind), rows[alike])
        return counts

    def _of_kind(self, rows: _Int64s, kind: int) -> _Int64s:
        """Which entries of rows, -1 for none, are of nodes of a kind."""
        known = np.nonzero(rows >= 0)[0]
        alike: _Int64s = known[self.kinds[rows[known]] == kind]
        return alike

    def _size(self, needs: NumaNeeds, kind: int) -> _Size:
        size = self._sizes.get((needs, kind))
        if size is None:
            items, total = items_of(needs, _KINDS[kind]), total_of(needs, _KINDS[kind])
            vectors = np.array([self._vector(each) for each in items], dtype=np.int64)
            vectors = vectors.reshape(len(items), len(self.columns))
            if len(self._sizes) >= _MOST_SIZES:
                self._sizes.clear()
            size = _Size(vectors, self._vector(largest_of(items)), self._vector(total))
            self._sizes[needs, kind] = size
        return size

    def _counts(self, size: _Size, rows: _Int64s) -> _Int64s:
        concerned = ((size.total > 0) & self.reported[rows]).any(axis=1)
        counts = np.full(len(rows), MANY, dtype=np.int64)
        rows = rows[concerned]
        if not len(rows):
            return counts
        available = self.available[rows]
        beside = available - self.total[rows][:, np.newaxis]
        in_one = np.where((beside >= 0).all(axis=2), _times(size.total, beside), 0).max(axis=1)
        if len(size.items):
            counts[concerned] = np.maximum(in_one, self._in_any(size, rows, available))
        else:
            counts[concerned] = in_one
        return counts

    def _in_any(self, size: _Size, rows: _Int64s, available: _Int64s) -> _Int64s:
        """int64[len(rows)]: how many pods fit by the second condition."""
        largest = np.maximum(self.largest[rows], size.largest)[:, np.newaxis]
        fitting = _times(largest, available - self.loose[rows][:, np.newaxis]).sum(axis=1)
        counts: _Int64s = np.maximum(fitting - self.count[rows], 0) // len(size.items)
        if len(size.items) > 1:
            # Where nothing else comes the kubelet's choice is known: for each container the first zone with room.
            alone = np.nonzero((counts == 0) & ~self.total[rows].any(axis=1))[0]
            counts[alone] = _fits_in_order(size.items, available[alone])
        return counts

    # --- changes ---

    def take(self, needs: NumaNeeds, nodes: _Int64s, counts: _Int64s) -> None:
        """Takes room for ``counts`` pods on nodes, or gives it back where a count is below zero.

        Args:
            nodes, counts: int64[M], each node once.
        """
        every = self.rows[nodes]
        for kind in range(len(_KINDS)):
            alike = self._of_kind(every, kind)
            if not len(alike):
                continue
            size = self._size(needs, kind)
            alike = alike[((size.total > 0) & self.reported[every[alike]]).any(axis=1)]
            rows, pods = every[alike], counts[alike]
            more = size.total * pods[:, np.newaxis] * self.reported[rows]
            self.total[rows] += more
            if not len(size.items):
                self.loose[rows] += more
                continue
            self.count[rows] += len(size.items) * pods
            # What left may have been the largest: then the size of the rest stays overestimated, until all have left.
            largest = np.maximum(self.largest[rows], np.where(pods[:, np.newaxis] > 0, size.largest, 0))
            self.largest[rows] = np.where(self.count[rows][:, np.newaxis] > 0, largest, 0)


def _times(wanted: _Int64s, free: _Int64s) -> _Int64s:
    """int64[M, Z]: how often each zone has room for what is wanted, int64[R] or int64[M, 1, R], MANY at most."""
    wanted = np.broadcast_to(wanted, free.shape)
    times = np.full(free.shape, MANY, dtype=np.int64)
    np.floor_divide(free, wanted, out=times, where=wanted > 0)
    most: _Int64s = times.min(axis=2, initial=MANY)
    return np.clip(most, 0, MANY)


def _fits_in_order(items: _Int64s, available: _Int64s) -> _Bools:
    """bool[M]: whether all items fit, each in the first zone with room for it."""
    free, fits = available.copy(), np.ones(len(available), dtype=np.bool_)
    for item in items:
        enough = ((free >= item) | (item == 0)).all(axis=2)
        enough &= (available >= 0).all(axis=2)  # a zone that the node has
        fits &= enough.any(axis=1)
        free[np.arange(len(free)), enough.argmax(axis=1)] -= item
    return fits
