"""Arrays with an entry per node, computed once, and again only at nodes where they are stale.

Each column names the events that make it stale; each event is reported with the nodes at which it happened. The time of
the last event at each node is stored once for all columns, so that an event costs the same for any number of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.model.generational_cache import GenerationalCache

#: Bytes of the columns that are kept, twice. At 12,500 nodes a column is between 12 and 100 kB; a round of 1,000
#: classes asks for about 3,000.
MAX_BYTES = 2**28
#: Bytes of a column beside its entries.
_COLUMN_BYTES = 500

#: Computes entries for the nodes at these positions, None: all nodes; the list is the legend, to which it may add.
Compute = Callable[[Int64s | None, list[Any]], NDArray[Any]]


@dataclass(slots=True)
class CacheStats:
    """How often columns were asked for.

    Attributes:
        hits: the column was up to date.
        refreshed: some entries were stale and computed again.
        misses: there was no column, or it was computed again since too many entries were stale.
        rows: entries that were computed.
    """

    hits: int = 0
    refreshed: int = 0
    misses: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Entries for all nodes.

    Attributes:
        values: [N]; None where every entry is 0.
        legend: the values that entries refer to.
        time: the time up to which events are taken into account.
        version: what it depends on beside events.
    """

    values: NDArray[Any] | None
    legend: list[Any]
    time: int
    version: Hashable


@dataclass(slots=True)
class Columns:
    """The columns of one cluster, with the time of the last event at each node.

    Attributes:
        node_count: nodes.
        stats: by owner of the columns.
    """

    node_count: int
    most: InitVar[int] = MAX_BYTES
    stats: dict[str, CacheStats] = field(default_factory=dict)
    _time: int = 1
    _last: dict[Hashable, int] = field(default_factory=dict)
    _last_at: dict[Hashable, Int64s] = field(default_factory=dict)
    _columns: GenerationalCache[Hashable, Column] = field(init=False)
    #: Stale entries by the time of a column and its events: most columns were last asked for together. Until the next
    #: event.
    _known_stale: dict[tuple[int, tuple[Hashable, ...]], Int64s | None] = field(default_factory=dict)

    def __post_init__(self, most: int) -> None:
        self._columns = GenerationalCache(most)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def nbytes(self) -> int:
        """Bytes of all columns and their keys."""
        return self._columns.nbytes

    def age(self) -> None:
        """Forgets columns that were not asked for since the last call but one."""
        self._columns.age()

    # --- events ---

    def record_event(self, event: Hashable, nodes: Iterable[int] = ()) -> None:
        """An event, at these nodes."""
        self._time += 1
        self._known_stale.clear()
        self._last[event] = self._time
        rows = np.fromiter(nodes, dtype=np.int64)
        if len(rows):
            if event not in self._last_at:
                self._last_at[event] = np.zeros(self.node_count, dtype=np.int64)
            self._last_at[event][rows] = self._time

    def last_time(self, event: Hashable) -> int:
        """When an event last happened, 0: never."""
        return self._last.get(event, 0)

    def reorder_nodes(self, positions: Int64s) -> None:
        """Nodes came, went, or are in another order.

        Args:
            positions: int64[N], where each node was, -1 for a new node: its entries are 0 until they are stale.
        """
        self.node_count = len(positions)
        self._known_stale.clear()
        self._last_at = {event: _gather(times, positions) for event, times in self._last_at.items()}
        self._columns = self._columns.mapped(
            lambda _key, column: replace(
                column, values=None if column.values is None else _gather(column.values, positions)
            )
        )

    # --- questions ---

    def column(
        self, owner: str, key: Hashable, stale_when: Iterable[Hashable], compute: Compute, version: Hashable = None
    ) -> Column:
        """The entries under a key, up to date.

        Args:
            owner: the name under which requests are counted.
            stale_when: events that make the entries of their nodes stale.
            compute: gives entries; everything that it depends on must be an event or part of ``version``.
            version: when it differs from the column's, every entry is stale.
        """
        stats = self.stats.setdefault(owner, CacheStats())
        held = self._columns.get(key)
        if held is None or held.version != version:
            stats.misses += 1
            stats.rows += self.node_count
            return self._keep(key, self._whole(compute, version))
        stale = self._stale(held, stale_when)
        if stale is None:
            stats.hits += 1
            renewed = replace(held, time=self._time)
            self._columns.renew(key, renewed)
            return renewed
        if 2 * len(stale) > self.node_count:
            stats.misses += 1
            stats.rows += self.node_count
            return self._keep(key, self._whole(compute, version))
        stats.refreshed += 1
        stats.rows += len(stale)
        legend = list(held.legend)
        fresh = compute(stale, legend)
        # Never in place: an earlier round may still hold the array.
        values = np.zeros(self.node_count, dtype=fresh.dtype) if held.values is None else held.values
        values = values.astype(np.result_type(values, fresh))
        values[stale] = fresh
        return self._keep(key, Column(_sealed(values), legend, self._time, version))

    def _stale(self, held: Column, stale_when: Iterable[Hashable]) -> Int64s | None:
        newer = [event for event in stale_when if self._last.get(event, 0) > held.time and event in self._last_at]
        if not newer:
            return None
        key = held.time, tuple(newer)
        if key not in self._known_stale:
            self._known_stale[key] = self._stale_since(held.time, newer)
        return self._known_stale[key]

    def _stale_since(self, time: int, newer: Sequence[Hashable]) -> Int64s | None:
        stale = self._last_at[newer[0]] > time
        for event in newer[1:]:
            stale |= self._last_at[event] > time
        return np.nonzero(stale)[0] if stale.any() else None

    def _whole(self, compute: Compute, version: Hashable) -> Column:
        legend: list[Any] = []
        return Column(_sealed(compute(None, legend)), legend, self._time, version)

    def _keep(self, key: Hashable, column: Column) -> Column:
        self._columns.put(key, column, _COLUMN_BYTES + (0 if column.values is None else column.values.nbytes))
        return column


def _gather(values: NDArray[Any], positions: Int64s) -> NDArray[Any]:
    moved = np.zeros(len(positions), dtype=values.dtype)
    known = positions >= 0
    moved[known] = values[positions[known]]
    return moved


def _sealed(values: NDArray[Any]) -> NDArray[Any] | None:
    if not values.any():
        return None
    values.flags.writeable = False
    return values
