"""Rounds in which some pods wait, so that pods that need devices of running pods have columns and may preempt.

Pods that ask for some of the same devices in different ways take devices one by one, and nobody is evicted for them. So
in every second round the most urgent of those for which running pods may leave have columns, and who is in their way
waits. In the other rounds all take devices one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Final

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, PendingPod, Snapshot
from flowcore.rules.devices.columns.claimed_numbers import Claimed
from flowcore.rules.devices.columns.column_sets import MOST_KINDS, ColumnSets
from flowcore.rules.devices.columns.request_kinds import Numbers, RequestKind
from flowcore.rules.devices.columns.selected_devices import SelectedDevices

_LOWEST = int(np.iinfo(np.int64).min)

#: Each kind that is a column, with the first of those that the same devices serve.
Columns = Mapping[RequestKind, RequestKind]


@dataclass(frozen=True, slots=True)
class Preemption:
    """For which waiting pods running ones may be evicted.

    Attributes:
        is_allowed: whether they may for a pod.
        passing: bool[N], nodes that a pod passes now, its devices left out.
    """

    is_allowed: Callable[[PendingPod], bool]
    passing: Callable[[PendingPod, Snapshot], Bools]


#: Nobody is evicted.
NO_PREEMPTION: Final = Preemption(
    lambda _pod: False, lambda _pod, known: np.zeros(len(known.table.nodes), dtype=np.bool_)
)


@dataclass(frozen=True, eq=False, slots=True)
class Asking:
    """Waiting pods of one priority that are to get the same.

    Attributes:
        first: one of them, for which pods may be evicted if they may for any.
        created: when the oldest of them came.
    """

    claimed: Claimed
    pods: tuple[PendingPod, ...]
    first: PendingPod
    created: float

    @property
    def priority(self) -> int:
        """Of its pods."""
        return self.first.pod_class.priority


def askings_of(pods: Iterable[tuple[Claimed, Sequence[PendingPod]]], preemption: Preemption) -> list[Asking]:
    """Pods that are to get the same, by priority."""
    askings = list[Asking]()
    for claimed, alike in pods:
        by_priority: dict[int, list[PendingPod]] = {}
        for pod in alike:
            by_priority.setdefault(pod.pod_class.priority, []).append(pod)
        for equal in by_priority.values():
            first = next(filter(preemption.is_allowed, equal), equal[0])
            askings.append(Asking(claimed, tuple(equal), first, min(pod.created for pod in equal)))
    return askings


def in_fair_order(askings: Iterable[Asking], turn: int) -> list[Asking]:
    """One of each namespace, its most urgent, then a second one of each; namespaces take turns at being the first."""
    by_urgency = sorted(askings, key=lambda each: (-each.priority, each.created))
    counts = Counter[str]()
    places = dict[Asking, int]()
    for asking in by_urgency:
        places[asking] = counts[asking.claimed.namespace]
        counts[asking.claimed.namespace] += 1
    turns = _turns(counts, turn)
    return sorted(by_urgency, key=lambda each: (places[each], -each.priority, turns[each.claimed.namespace]))


def _turns(namespaces: Collection[str], turn: int) -> dict[str, int]:
    return {name: (place - turn) % len(namespaces) for place, name in enumerate(sorted(namespaces))}


class OwnRounds:
    """Who has columns in a round in which not all kinds can be columns.

    Args:
        columns_of: the columns if these take devices and no others.
        preemption: for which pods running ones may be evicted.
    """

    def __init__(
        self,
        sets: ColumnSets,
        snapshot: Snapshot,
        columns_of: Callable[[Iterable[Claimed]], Columns],
        preemption: Preemption,
    ) -> None:
        self._sets, self._snapshot, self._columns_of = sets, snapshot, columns_of
        self._preemption = preemption
        #: Whether some node has free devices for numbers.
        self._has_free: dict[Numbers, bool] = {}

    @cached_property
    def _lowest(self) -> Int64s:
        return _lowest_priorities(self._snapshot)

    def needy(self, askings: Iterable[Asking], columns: Columns) -> list[Asking]:
        """Those without columns that get devices only if pods of lower priorities leave, of the first so many."""
        candidates = (
            asking
            for asking in askings
            if asking.claimed.numbers
            and not are_columns(asking.claimed, columns)
            and self._preemption.is_allowed(asking.first)
            and all(not kind.offered and self._selected(kind).is_countable for kind in asking.claimed.kinds)
        )
        return [asking for asking in islice(candidates, MOST_KINDS) if self._needs_others_to_leave(asking)]

    def _needs_others_to_leave(self, asking: Asking) -> bool:
        has_free = self._nodes_for(asking.claimed, free=True)
        others = self._nodes_for(asking.claimed, free=False) & ~has_free & (self._lowest < asking.priority)
        if not others.any():
            return False
        return not (has_free & self._preemption.passing(asking.first, self._snapshot)).any()

    def _nodes_for(self, claimed: Claimed, *, free: bool) -> Bools:
        """bool[N]: nodes with as many devices of each kind as the numbers say, or as many ``free`` ones."""
        table = self._snapshot.table
        nodes = np.ones(len(table.nodes), dtype=np.bool_)
        for kind, _ in claimed.numbers:
            number = sum(more for second, more in claimed.numbers if self._sets.relation(kind, second, table))
            selected = self._selected(kind)
            nodes &= selected.counts(table) - (selected.counts_taken(table) if free else 0) >= number
        return nodes

    def choose(
        self,
        askings: Sequence[Asking],
        unknown: Iterable[Asking],
        fixed: Sequence[Claimed],
        needy: Sequence[Asking],
        turn: int,
    ) -> tuple[Columns, set[Asking]]:
        """Columns for as many of the needy as can be, the most urgent first, and who waits for that.

        Args:
            askings: pods that may take devices.
            unknown: pods of which nobody knows which devices they may get.
            fixed: what pods are to get that are on their way.
            needy: some of ``askings``.
        """
        turns = _turns({each.claimed.namespace for each in needy}, turn)
        ranked = sorted(needy, key=lambda each: (-each.priority, turns[each.claimed.namespace], each.created))
        unknown = list(unknown)
        columns: Columns = {}
        waiting = set[Asking]()
        served = list[Asking]()
        for asking in ranked:
            if asking in waiting:
                continue
            if are_columns(asking.claimed, columns):
                served.append(asking)
                continue
            tried = self._tried(asking, askings, unknown, fixed, waiting, needy)
            if tried is not None and all(
                are_columns(each.claimed, tried[0]) and each not in tried[1] for each in (*served, asking)
            ):
                columns, waiting = tried
                served.append(asking)
        return columns, waiting

    def _tried(
        self,
        asking: Asking,
        askings: Sequence[Asking],
        unknown: Sequence[Asking],
        fixed: Sequence[Claimed],
        waiting: AbstractSet[Asking],
        needy: Sequence[Asking],
    ) -> tuple[Columns, set[Asking]] | None:
        """Columns for one more, and who waits then; None: pods that do not wait are in its way."""
        if any(each.priority > asking.priority for each in unknown):
            return None
        waiting = {*waiting, *unknown}
        self._add_lower(askings, unknown, needy, waiting)
        while True:
            taking = [each for each in askings if each not in waiting]
            columns = self._columns_of([*fixed, *(each.claimed for each in taking)])
            if are_columns(asking.claimed, columns):
                return columns, waiting
            blockers = [each for each in taking if self._is_in_the_way(each.claimed, asking.claimed, columns)]
            crossing = [each for each in blockers if self._crosses(each.claimed, asking.claimed)]
            more = set(crossing or blockers)
            if not more or asking in more:
                return None
            if any(each.priority > asking.priority and self._may_get(each, needy) for each in more):
                return None
            waiting |= more
            self._add_lower(askings, unknown, needy, waiting)

    def _is_in_the_way(self, claimed: Claimed, needed: Claimed, columns: Columns) -> bool:
        """Whether pods take devices one by one that others need as columns; those that need the same kinds do not."""
        alike = claimed.numbers and set(claimed.kinds) == set(needed.kinds)
        return not alike and not are_columns(claimed, columns) and self._touches(claimed.kinds, needed.kinds)

    def _crosses(self, claimed: Claimed, needed: Claimed) -> bool:
        table = self._snapshot.table
        return not claimed.numbers or any(
            self._sets.relation(kind, second, table) is None for kind in claimed.kinds for second in needed.kinds
        )

    def _touches(self, kinds: Iterable[RequestKind], others: Collection[RequestKind]) -> bool:
        table = self._snapshot.table
        return any(self._sets.relation(kind, second, table) is not False for kind in kinds for second in others)

    def _may_get(self, asking: Asking, needy: Collection[Asking]) -> bool:
        """Whether pods may get devices in a round."""
        claimed = asking.claimed
        if asking in needy or not all(self._selected(kind).is_countable for kind in claimed.kinds):
            return True
        if claimed.numbers not in self._has_free:  # without numbers every node may have devices
            self._has_free[claimed.numbers] = bool(self._nodes_for(claimed, free=True).any())
        return self._has_free[claimed.numbers]

    def _add_lower(
        self,
        askings: Sequence[Asking],
        unknown: Sequence[Asking],
        needy: Collection[Asking],
        waiting: set[Asking],
    ) -> None:
        """Who might take what a pod of a higher priority waits for waits too."""
        count = -1
        while count < len(waiting):
            count = len(waiting)
            giving_way = [each for each in askings if each in waiting and self._may_get(each, needy)]
            waiting |= self._below(askings, giving_way, unknown)

    def _below(self, askings: Sequence[Asking], giving_way: Iterable[Asking], unknown: Iterable[Asking]) -> set[Asking]:
        """Who might take what a pod of a higher priority waits for."""
        of_all = max((each.priority for each in unknown), default=_LOWEST)
        highest: dict[RequestKind, int] = {}
        for asking in giving_way:
            for kind in asking.claimed.kinds:
                highest[kind] = max(highest.get(kind, _LOWEST), asking.priority)
        kinds = dict.fromkeys(kind for asking in askings for kind in asking.claimed.kinds)
        above = {
            kind: max((highest[second] for second in highest if self._touches((kind,), (second,))), default=_LOWEST)
            for kind in kinds
        }
        return {
            asking
            for asking in askings
            if any(asking.priority < max(of_all, above[kind]) for kind in asking.claimed.kinds)
        }

    def _selected(self, kind: RequestKind) -> SelectedDevices:
        return self._sets.selected(kind, self._snapshot.table)


def are_columns(claimed: Claimed, columns: Columns) -> bool:
    """Whether columns say all that a pod asks for."""
    return bool(claimed.numbers) and all(kind in columns for kind, _ in claimed.numbers)


def _lowest_priorities(snapshot: Snapshot) -> Int64s:
    """int64[N]: of the running pods of each node that claim devices; above all priorities where there are none."""
    lowest = np.full(len(snapshot.table.nodes), np.iinfo(np.int64).max, dtype=np.int64)
    for pod in () if snapshot.running is None else snapshot.running.pods:
        row = snapshot.table.index.get(pod.node)
        if row is not None and pod.pod_class.devices is not None:
            lowest[row] = min(lowest[row], pod.priority)
    return lowest
