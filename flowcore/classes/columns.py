"""Arrays with an entry per node, computed once and, from then on, only where they have grown stale.

Whoever keeps something here says which events make it stale; whoever hears of an event says at which nodes it happened.
Each event's last time at each node is noted once for all columns, so an event costs the same however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowcore.model.recent import Recent
from flowcore.model.snapshot import Int64s

#: Bytes of the columns that are kept, twice. At 12,500 nodes a column is between 12 and 100 kB; a round of 1,000
#: classes asks for about 3,000.
MOST_BYTES = 2**28
#: Bytes of a column beside its entries.
_COLUMN = 500

#: Entries for the nodes at these places, all nodes where None; a list that the entries may refer to, to be added to.
Compute = Callable[[Int64s | None, list[Any]], NDArray[Any]]


@dataclass(slots=True)
class Tally:
    """How often columns were asked for.

    Attributes:
        hits: all of it was up to date.
        refreshed: some of it was stale, and computed anew.
        misses: it was not there, or so much of it was stale that all was computed anew.
        rows: entries that were computed, in refreshed ones and misses.
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
        legend: what the entries refer to.
        when: the time up to which it has heard of everything.
        mark: what it depends on beside events.
    """

    values: NDArray[Any] | None
    legend: list[Any]
    when: int
    mark: Hashable


@dataclass(slots=True)
class Columns:
    """See the module.

    Attributes:
        count: nodes.
        tallies: by what each column belongs to.
    """

    count: int
    most: InitVar[int] = MOST_BYTES
    tallies: dict[str, Tally] = field(default_factory=dict)
    _time: int = 1
    _last: dict[Hashable, int] = field(default_factory=dict)
    _last_at: dict[Hashable, Int64s] = field(default_factory=dict)
    _columns: Recent[Hashable, Column] = field(init=False)

    def __post_init__(self, most: int) -> None:
        self._columns = Recent(most)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def nbytes(self) -> int:
        """Bytes of all columns and their keys."""
        return self._columns.nbytes

    def age(self) -> None:
        """Forgets what nobody asked for since the last call but one."""
        self._columns.age()

    # --- events ---

    def happened(self, event: Hashable, nodes: Iterable[int] = ()) -> None:
        """An event, at these nodes."""
        self._time += 1
        self._last[event] = self._time
        at = np.fromiter(nodes, dtype=np.int64)
        if len(at):
            if event not in self._last_at:
                self._last_at[event] = np.zeros(self.count, dtype=np.int64)
            self._last_at[event][at] = self._time

    def last(self, event: Hashable) -> int:
        """When it happened last, 0 for never."""
        return self._last.get(event, 0)

    def rearrange(self, places: Int64s) -> None:
        """Other nodes, or in another order.

        Args:
            places: int64[N], where each node was, -1 for those that are new: their entries are 0 until they are stale.
        """
        self.count = len(places)
        self._last_at = {event: _moved(times, places) for event, times in self._last_at.items()}
        self._columns = self._columns.mapped(
            lambda _key, each: replace(each, values=None if each.values is None else _moved(each.values, places))
        )

    # --- questions ---

    def column(
        self, owner: str, key: Hashable, stale_when: Iterable[Hashable], compute: Compute, mark: Hashable = None
    ) -> Column:
        """The entries under a key, up to date.

        Args:
            owner: whose tally it counts in.
            stale_when: events that make the entry of a node stale, where they happen.
            compute: gives entries; all that it depends on must be told as events or be in ``mark``.
            mark: while this stays equal, ``stale_when`` is all; when it differs, every entry is stale.
        """
        tally = self.tallies.setdefault(owner, Tally())
        held = self._columns.get(key)
        if held is None or held.mark != mark:
            tally.misses += 1
            tally.rows += self.count
            return self._keep(key, self._whole(compute, mark))
        stale = self._stale(held, stale_when)
        if stale is None:
            tally.hits += 1
            found = replace(held, when=self._time)
            self._columns.renew(key, found)
            return found
        if 2 * len(stale) > self.count:
            tally.misses += 1
            tally.rows += self.count
            return self._keep(key, self._whole(compute, mark))
        tally.refreshed += 1
        tally.rows += len(stale)
        legend = list(held.legend)
        fresh = compute(stale, legend)
        # Never in place: an earlier round may still hold it.
        values = np.zeros(self.count, dtype=fresh.dtype) if held.values is None else held.values
        values = values.astype(np.result_type(values, fresh))
        values[stale] = fresh
        return self._keep(key, Column(_sealed(values), legend, self._time, mark))

    def _stale(self, held: Column, stale_when: Iterable[Hashable]) -> Int64s | None:
        newer = [event for event in stale_when if self._last.get(event, 0) > held.when and event in self._last_at]
        if not newer:
            return None
        stale = self._last_at[newer[0]] > held.when
        for event in newer[1:]:
            stale |= self._last_at[event] > held.when
        return np.nonzero(stale)[0] if stale.any() else None

    def _whole(self, compute: Compute, mark: Hashable) -> Column:
        legend: list[Any] = []
        return Column(_sealed(compute(None, legend)), legend, self._time, mark)

    def _keep(self, key: Hashable, column: Column) -> Column:
        self._columns.put(key, column, _COLUMN + (0 if column.values is None else column.values.nbytes))
        return column


def _moved(values: NDArray[Any], places: Int64s) -> NDArray[Any]:
    moved = np.zeros(len(places), dtype=values.dtype)
    there = places >= 0
    moved[there] = values[places[there]]
    return moved


def _sealed(values: NDArray[Any]) -> NDArray[Any] | None:
    if not values.any():
        return None
    values.flags.writeable = False
    return values
