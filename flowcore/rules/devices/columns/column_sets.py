"""Which devices are one resource for the requests of a round, followed while claims, slices and nodes change.

Requests of two kinds either may get the same devices, or none in common: then whichever devices a request gets, as many
are left to others, and a count says all. Other kinds are no columns in that round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, NodeTable
from flowcore.model.resource_claims import ClaimAllocation
from flowcore.model.resource_slices import DeviceId
from flowcore.model.running_pods import RunningPod
from flowcore.rules.devices.allocation.pools import SliceIndex
from flowcore.rules.devices.columns.request_kinds import RequestKind
from flowcore.rules.devices.columns.selected_devices import SelectedDevices
from flowcore.rules.devices.device_selectors import DeviceSelectors
from flowcore.rules.devices.node_reach import ReachedNode, reached_node
from flowcore.rules.devices.search_effort import Spend, unlimited

#: Kinds that are remembered: each holds up to 200 bytes for each device of the cluster.
MOST_KINDS = 32


class ColumnSets:
    """The devices of the kinds that were asked for lately, and which of them claims have."""

    def __init__(self, slices: SliceIndex, selectors: DeviceSelectors) -> None:
        self._slices, self._selectors = slices, selectors
        #: How many claims have each device as a whole.
        self._holders = Counter[DeviceId]()
        self._selected: dict[RequestKind, SelectedDevices] = {}
        #: The table and the slices that each kind was asked for last.
        self._asked: dict[RequestKind, tuple[NodeTable, SliceIndex]] = {}
        #: Whether two kinds may get the same devices, True, or none in common, False; None: some in common, or the same
        #: in place of different extended resources.
        self._relations: dict[tuple[RequestKind, RequestKind], bool | None] = {}
        self._invalid: tuple[NodeTable, SliceIndex, Bools] | None = None
        #: How often some set changed; what running pods use of columns, by uid, and of which columns.
        self._changes = 0
        self._running: dict[str, tuple[RunningPod, RunningPod]] = {}
        self._running_of: Hashable = None

    def follow_slices(self, slices: SliceIndex) -> None:
        """Slices have changed."""
        self._slices = slices

    def count(self, allocation: ClaimAllocation, number: int) -> None:
        """A claim gets an allocation, 1, or loses it, -1."""
        for result in allocation.devices:
            if result.admin_access:
                continue
            device = result.device
            before = self._holders[device]
            self._holders[device] = after = before + number
            if not after:
                del self._holders[device]
            self._changes += max(before, after) > 1
            if bool(before) != bool(after):
                for selected in self._selected.values():
                    selected.take(device, bool(after) - bool(before))

    def is_had_twice(self, device: DeviceId) -> bool:
        """Whether several claims have a device, as kube-scheduler's and ours may: it is not free once one is gone."""
        return self._holders[device] > 1

    def retain(self, kinds: Collection[RequestKind]) -> None:
        """Forgets other kinds if there are too many."""
        if len(self._selected.keys() | kinds) > MOST_KINDS:
            self._selected = {kind: known for kind, known in self._selected.items() if kind in kinds}
            self._asked = {kind: known for kind, known in self._asked.items() if kind in kinds}
            self._relations = {}

    def selected(self, kind: RequestKind, table: NodeTable, spend: Spend = unlimited) -> SelectedDevices:
        """The devices of a kind that nodes of a table reach; not to be changed.

        Raises:
            EffortSpentError: ``spend`` does.
        """
        selected = self._selected.get(kind)
        if selected is None:
            selected = self._selected[kind] = SelectedDevices(kind, self._selectors, self._holders.__contains__)
        known = self._asked.get(kind)
        if known is None or known[0] is not table or known[1] is not self._slices:
            if selected.follow(self._slices, _reached(table), spend):
                self._changes += 1
                self._relations = {pair: known for pair, known in self._relations.items() if kind not in pair}
            self._asked[kind] = table, self._slices
        return selected

    def columns(
        self, counted: Collection[RequestKind], others: Collection[RequestKind], table: NodeTable
    ) -> dict[RequestKind, RequestKind]:
        """The kinds that are columns, each with the first of those that may get the same devices.

        Args:
            counted: kinds of which pods ask for numbers; they were asked for before, as all others.
            others: kinds of which pods take devices one by one.
        """
        first_of: dict[RequestKind, RequestKind] = {}
        crossing = set[RequestKind]()
        for kind in counted:
            if not self.selected(kind, table).is_countable or any(
                self.relation(kind, taken, table) is not False for taken in others
            ):
                continue
            relations = {first: self.relation(kind, first, table) for first in dict.fromkeys(first_of.values())}
            crossed = [first for first, relation in relations.items() if relation is None]
            if crossed:
                crossing.update(crossed)
                continue
            first_of[kind] = next((first for first, relation in relations.items() if relation), kind)
        return {kind: first for kind, first in first_of.items() if first not in crossing}

    def relation(self, kind: RequestKind, second: RequestKind, table: NodeTable) -> bool | None:
        """Whether two kinds may get the same devices, True, or none in common, False; None: they cross."""
        if kind == second:
            return True
        both = self.selected(kind, table), self.selected(second, table)
        known = self._relations.get((kind, second), ...)
        if known is ...:
            known = _compared(*both)
            if known and kind.offered != second.offered:  # one of them needs fewer devices on some nodes
                known = None
            self._relations[kind, second] = self._relations[second, kind] = known
        return known

    def running(self, columns: Hashable) -> dict[str, tuple[RunningPod, RunningPod]]:
        """What is remembered of running pods, by uid: the pod, and the same as it uses columns.

        Args:
            columns: equal for the same columns.
        """
        if self._running_of != (columns, self._changes):
            self._running, self._running_of = {}, (columns, self._changes)
        return self._running

    def forget_running(self, uid: str) -> None:
        """A claim of a pod has changed."""
        self._running.pop(uid, None)

    def invalid(self, table: NodeTable) -> Bools:
        """bool[N]: nodes with a pool from which nothing can be allocated; not to be changed."""
        known = self._invalid
        if known is None or known[0] is not table or known[1] is not self._slices:
            pools = (self._slices.pools(node) for node in _reached(table))
            invalid = np.array([any(pool.problem for pool in each) for each in pools], dtype=np.bool_)
            known = self._invalid = table, self._slices, invalid
        return known[2]


def _compared(selected: SelectedDevices, second: SelectedDevices) -> bool | None:
    counted, counted_second = selected.node_of.keys(), second.node_of.keys()
    if selected.is_countable and second.is_countable and counted == counted_second:
        return True
    is_apart = (
        counted.isdisjoint(counted_second)
        and counted.isdisjoint(second.uncounted)
        and selected.uncounted.isdisjoint(counted_second)
        and selected.uncounted.isdisjoint(second.uncounted)
    )
    return False if is_apart else None


def _reached(table: NodeTable) -> list[ReachedNode]:
    return [reached_node(node) for node in table.nodes]
