"""Who waits where some pods take devices one by one that others need as columns.

Pods that ask for some of the same devices in different ways take devices one by one, and nobody is evicted for them.
Where running pods may leave for some of these, the highest priority goes first and keeps its columns. Equal ones take
turns. Who is in the way of those that go first waits in this round.
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
from flowcore.model.turns import begun_at, spread
from flowcore.rules.devices.columns.claimed_numbers import Claimed
from flowcore.rules.devices.columns.column_sets import MOST_KINDS, ColumnSets
from flowcore.rules.devices.columns.request_kinds import Numbers, RequestKind
from flowcore.rules.devices.columns.selected_devices import SelectedDevices

_LOWEST = int(np.iinfo(np.int64).min)
#: In about one of so many rounds nobody waits for a higher priority: that pod may never get its devices.
_FOR_ALL = 4

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


def _in_turn(askings: Iterable[Asking], needy: AbstractSet[Asking], turn: int) -> list[Asking]:
    """The highest priority first; of equal ones namespaces take turns."""
    askings = list(askings)
    turns = _turns({each.claimed.namespace for each in askings}, turn)
    return sorted(
        askings, key=lambda each: (-each.priority, turns[each.claimed.namespace], each not in needy, each.created)
    )


def _turns(namespaces: Collection[str], turn: int) -> dict[str, int]:
    return {name: place for place, name in enumerate(begun_at(sorted(namespaces), spread(turn)))}


def _is_for_all(count: int, turn: int) -> bool:
    """Whether a round with so many namespaces is one in which nobody waits for a higher priority.

    Each namespace is first (``_turns``) in as many rounds of both sorts, also where only every second or third round
    has pods with devices.
    """
    return spread(turn) * count % 2**32 * _FOR_ALL >= 2**32 * (_FOR_ALL - 1)


class Conflicts:
    """Decides who waits in a round in which not all kinds can be columns.

    Args:
        kinds: those of all pods that may take devices.
        fixed: what pods are to get that are on their way: they do not wait.
        columns_of: the columns if these take devices and no others.
        preemption: for which pods running ones may be evicted.
    """

    def __init__(
        self,
        sets: ColumnSets,
        snapshot: Snapshot,
        kinds: Collection[RequestKind],
        fixed: Sequence[Claimed],
        columns_of: Callable[[Iterable[Claimed]], Columns],
        preemption: Preemption,
    ) -> None:
        self._sets, self._snapshot, self._preemption = sets, snapshot, preemption
        related = {kind: {each: sets.relation(kind, each, snapshot.table) for each in kinds} for kind in kinds}
        #: By kind those that may get some of the same devices, and of these the ones that cannot be columns with it.
        self._near = {kind: {each for each, same in to.items() if same is not False} for kind, to in related.items()}
        self._crossed = {kind: {each for each, same in to.items() if same is None} for kind, to in related.items()}
        columns = columns_of(fixed)
        taken = {kind for claimed in fixed for kind in claimed.kinds}
        #: Kinds of ``fixed`` that can be columns, and those of which devices are taken one by one.
        self._fixed, self._by_one = taken & columns.keys(), taken - columns.keys()
        #: Whether some node has free devices for numbers.
        self._has_free: dict[Numbers, bool] = {}

    @cached_property
    def _lowest(self) -> Int64s:
        return _lowest_priorities(self._snapshot)

    def needy(self, askings: Iterable[Asking], columns: Columns) -> set[Asking]:
        """The first askings without columns that get devices only if pods of lower priorities leave."""
        candidates = (
            asking
            for asking in askings
            if asking.claimed.numbers
            and not are_columns(asking.claimed, columns)
            and self._is_column_beside(asking.claimed, self._fixed)
            and self._preemption.is_allowed(asking.first)
            and not any(kind.offered for kind in asking.claimed.kinds)
        )
        return {asking for asking in islice(candidates, MOST_KINDS) if self._needs_others_to_leave(asking)}

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

    def who_waits(
        self, askings: Sequence[Asking], unknown: Sequence[Asking], needy: AbstractSet[Asking], turn: int
    ) -> set[Asking]:
        """Who waits for pods that go first and have columns.

        Args:
            askings: pods that may take devices.
            unknown: pods of which nobody knows which devices they may get.
            needy: some of ``askings`` (``needy``).
        """
        taking = [each for each in askings if each.claimed.kinds]
        waiting = set[Asking]()
        for together in [[*taking, *unknown]] if unknown else self._together(taking):
            waiting |= self._behind_the_first(_in_turn(together, needy, turn), needy, turn)
        return waiting

    def _together(self, askings: Iterable[Asking]) -> list[list[Asking]]:
        """The askings that have to do with each other, by the devices that they may get."""
        groups = list[tuple[set[RequestKind], list[Asking]]]()
        for asking in askings:
            near = set[RequestKind]().union(*(self._near[kind] for kind in asking.claimed.kinds))
            kinds, together, others = set(asking.claimed.kinds), [asking], list[tuple[set[RequestKind], list[Asking]]]()
            for group in groups:
                if group[0].isdisjoint(near):
                    others.append(group)
                else:
                    kinds |= group[0]
                    together += group[1]
            groups = [*others, (kinds, together)]
        return [together for _, together in groups]

    def _behind_the_first(self, order: Sequence[Asking], needy: AbstractSet[Asking], turn: int) -> set[Asking]:
        """Who waits for the first that may get devices, if it needs columns: who cannot have columns beside it.

        Nobody gets what a waiting pod of a higher priority could have.
        """
        first = next((each for each in order if self._may_get(each, needy)), None)
        if first is None or first not in needy:
            return set()
        columns, waiting, highest = {*self._fixed, *first.claimed.kinds}, set[Asking](), _LOWEST
        for asking in order:
            if asking.priority >= highest and self._is_column_beside(asking.claimed, columns):
                columns.update(asking.claimed.kinds)
            else:
                waiting.add(asking)
                highest = max(highest, asking.priority if self._may_get(asking, needy) else _LOWEST)
        count = len({each.claimed.namespace for each in order})
        is_overtaken = any(each.priority < first.priority for each in waiting)
        return set() if is_overtaken and _is_for_all(count, turn) else waiting

    def _is_column_beside(self, claimed: Claimed, columns: AbstractSet[RequestKind]) -> bool:
        """Whether numbers say what a pod asks for, and go on to say what others ask for."""
        return bool(claimed.numbers) and all(
            self._selected(kind).is_countable
            and self._crossed[kind].isdisjoint((*columns, *claimed.kinds))
            and self._near[kind].isdisjoint(self._by_one)
            for kind in claimed.kinds
        )

    def _may_get(self, asking: Asking, needy: AbstractSet[Asking]) -> bool:
        """Whether pods may get devices in a round."""
        claimed = asking.claimed
        if asking in needy or not all(self._selected(kind).is_countable for kind in claimed.kinds):
            return True
        if claimed.numbers not in self._has_free:  # without numbers every node may have devices
            self._has_free[claimed.numbers] = bool(self._nodes_for(claimed, free=True).any())
        return self._has_free[claimed.numbers]

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
