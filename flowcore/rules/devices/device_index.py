"""Verdicts on devices for all nodes, remembered by what claims ask for, and kept while objects change one by one.

Claims that ask for the same get the same answer from a node as long as nothing of the pools that it reaches changes. So
the claims that a template makes for a thousand pods cost one search on each node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from flowcore.cluster.arrays.device_objects import ClaimKey, DeviceObjects
from flowcore.cluster.arrays.snapshot import Bools, NodeTable
from flowcore.model.devices import DeviceClass
from flowcore.model.generational_cache import GenerationalCache
from flowcore.model.resource_claims import ClaimAllocation, DeviceTaker, ResourceClaim
from flowcore.model.resource_slices import PoolId, ResourceSlice
from flowcore.rules.devices.allocation.allocated_devices import AllocatedDevices
from flowcore.rules.devices.allocation.pools import Pool, SliceIndex
from flowcore.rules.devices.claim_verdicts import DeviceState
from flowcore.rules.devices.claimable_devices import ClaimableDevices, has_allocation, pools_of
from flowcore.rules.devices.columns.column_sets import ColumnSets
from flowcore.rules.devices.device_selectors import DeviceSelectors
from flowcore.rules.devices.nameless_claims import NamelessClaims, extended_resources, named, without_names
from flowcore.rules.devices.node_reach import ReachedNode, reached_node
from flowcore.rules.devices.pod_claims import ClaimRejection
from flowcore.rules.devices.search_effort import LOOK_UP, REASON_LATER, EffortSpentError, SearchEffort, Spend

#: Under which the objects keep the index.
_MEMO = "index"
#: Bytes of the answers that are kept, twice, and of one node's answer.
_MAX_BYTES, _ANSWER_BYTES = 2**26, 750

#: Number of a node's pools, and what it offers itself in place of devices; for claims with allocations the node.
_Place = tuple[int, ReachedNode | tuple[str, ...]]
#: Reasons, each with the nodes that it holds for, bool[N].
Rejected = Sequence[tuple[str, Bools]]


@dataclass(frozen=True, slots=True)
class _RejectedNodes:
    """Nodes of a table without devices for some claims.

    Attributes:
        change: the number of the last change that they are of.
        unfinished: the round in which some were left for later; None: all were searched.
    """

    table: NodeTable
    change: int
    rejected: Rejected
    unfinished: int | None

    def is_of(self, table: NodeTable, change: int, this_round: int) -> bool:
        """Whether they still are what would be found."""
        return self.table is table and self.change >= change and self.unfinished in (None, this_round)


class _Answer(NamedTuple):
    """What a node says.

    Attributes:
        change: the number of the last change that it is of.
        reason: why it has no devices; "": it has them.
        allocations: what the claims get.
    """

    change: int
    reason: str
    allocations: tuple[ClaimAllocation, ...] = ()


@dataclass(slots=True)
class _Answers:
    """What nodes say to claims that ask for the same.

    Attributes:
        rejected: nodes of a table.
    """

    by_place: dict[_Place, _Answer] = field(default_factory=dict)
    rejected: _RejectedNodes | None = None


@dataclass(slots=True)
class _Planned:
    """Devices beside more planned pods, for as long as the same pods are asked about.

    Attributes:
        changes: how often the objects had changed.
        rejected: nodes of a table that have no devices for claims.
    """

    takers: tuple[DeviceTaker, ...]
    changes: int
    devices: ClaimableDevices
    rejected: dict[NamelessClaims, _RejectedNodes] = field(default_factory=dict)


class DeviceIndex:
    """What verdicts read of a cluster's devices.

    Attributes:
        devices: those of the cluster, less what pods take that are on their way.
        columns: which of them are one resource for some requests, with the same taken.
    """

    def __init__(self, objects: DeviceObjects) -> None:
        self._objects = objects
        self._version = self._published = -1
        self._selectors, self._effort = DeviceSelectors(), SearchEffort()
        #: As they were when the index followed the objects last.
        self._slices: dict[str, ResourceSlice] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._allocated = AllocatedDevices()
        #: What claims have, and what is allocated with pods that are on their way.
        self._counted: dict[ClaimKey, ClaimAllocation] = {}
        self._owners: dict[ClaimKey, str] = {}
        self._known: dict[ClaimKey, ClaimAllocation] = {}
        #: How often something changed, and by pool after how many changes something of it did last.
        self._changes = self._last_change_of_pools = 0
        self._changed_at: dict[PoolId, int] = {}
        self._answers: GenerationalCache[NamelessClaims, _Answers] = GenerationalCache(_MAX_BYTES)
        self._last_planned: _Planned | None = None
        #: How often something had changed, and how many rounds were planned in turns since.
        self._turns = 0, 0
        self._state = self._state_of(SliceIndex(()))
        self.columns = ColumnSets(self._state.slices, self._selectors)
        self.devices = ClaimableDevices(self._state, objects.claims, objects.extended)

    @classmethod
    def of(cls, objects: DeviceObjects) -> DeviceIndex:
        """The index of some objects as they are now."""
        index: DeviceIndex | None = objects.memo.get(_MEMO)
        if index is None:
            index = objects.memo[_MEMO] = cls(objects)
        if index._effort.rounds != objects.rounds:
            index._effort.begin_round(objects.rounds)
            index._selectors.in_rounds = objects.rounds > 0
            index._selectors.forget_costs()
        if index._version != objects.version:
            index._follow()
        return index

    def _state_of(self, slices: SliceIndex) -> DeviceState:
        return DeviceState(slices, self._objects.classes, self._allocated, self._selectors, self._effort)

    def _follow(self) -> None:
        objects = self._objects
        self._changes += 1
        if self._published != objects.published:
            self._follow_published()
        self._version, self._published = objects.version, objects.published
        unread = objects.take_unread_claims()
        changed = unread if self._changes > 1 else set(objects.claims)
        for key in changed:
            self._count(key)
        changed |= self.devices.allocations.keys()
        self.devices = ClaimableDevices(self._state, objects.claims, objects.extended)
        for taker in objects.takers:
            # What is decided costs nothing; what kube-scheduler will choose for others is a guess, in each round anew.
            self.devices.take(taker, self._effort.of(taker.pod.namespace))
        for key in changed | self.devices.allocations.keys():
            self._note(key, self._counted.get(key) or self.devices.allocations.get(key))
        self.devices.begin(partial(self._searched, self._changes))

    def _searched(
        self, changes: int, claims: NamelessClaims, place: _Place, pools: tuple[Pool, ...]
    ) -> tuple[ClaimAllocation, ...] | ClaimRejection | None:
        """What claims get of pools if nothing is planned, or why not, by a search that was made; None: nobody knows.

        Args:
            changes: how often the objects had changed then.
        """
        answers = self._answers.get(claims) if changes == self._changes else None
        known = None if answers is None else answers.by_place.get(place)
        if known is None or known.change < self._last_change(pools):
            return None
        return ClaimRejection(known.reason) if known.reason else known.allocations

    def _last_change(self, pools: Iterable[Pool]) -> int:
        return max((self._changed_at.get(pool.pool_id, 0) for pool in pools), default=0)

    def _follow_published(self) -> None:
        """Takes over slices and classes. What nodes say whose slices are the same still holds."""
        self._selectors.forget_costs()
        before, after = self._slices, self._objects.slices
        changed = [name for name in before.keys() | after if before.get(name) is not after.get(name)]
        pools = {each.pool_id for name in changed for each in (before.get(name), after.get(name)) if each is not None}
        if pools or self._published < 0:
            self._state = self._state_of(self._state.slices.changed(after.values(), pools))
            self.columns.follow_slices(self._state.slices)
        if self._classes != self._objects.classes:
            self._answers = GenerationalCache(_MAX_BYTES)
        self._slices, self._classes = dict(after), dict(self._objects.classes)
        self._last_change_of_pools = self._changes

    def _count(self, key: ClaimKey) -> None:
        """Takes over what a claim has by now."""
        claim, before = self._objects.claims.get(key), self._counted.pop(key, None)
        for owner in (self._owners.pop(key, ""), "" if claim is None else claim.controller):
            self.columns.forget_running(owner)
        if claim is not None:
            self._owners[key] = claim.controller
        after = None if claim is None else claim.allocation
        if after is not None:
            self._counted[key] = after
        if before != after:
            if before is not None:
                self._allocated.remove(before)
            if after is not None:
                self._allocated.add(after)

    def _note(self, key: ClaimKey, after: ClaimAllocation | None) -> None:
        """What a claim has now, with pods that are on their way."""
        before = self._known.pop(key, None)
        if after is not None:
            self._known[key] = after
        if before == after:
            return
        for allocation, number in ((before, -1), (after, 1)):
            if allocation is not None:
                self.columns.count(allocation, number)
                for pool in pools_of((allocation,)):
                    self._changed_at[pool] = self._last_change_of_pools = self._changes

    def has_turns(self, most: int) -> bool:
        """Whether nothing changed for at most so many calls: after that it is no use to plan the same again."""
        changes, count = self._turns
        self._turns = self._changes, count + 1 if changes == self._changes else 1
        return self._turns[1] <= most

    def effort_of(self, namespace: str) -> Spend:
        """Counts what a round spends on the claims of a namespace."""
        return self._effort.of(namespace)

    def devices_beside(self, takers: tuple[DeviceTaker, ...]) -> ClaimableDevices:
        """The devices, less what more planned pods take; not to be changed."""
        return self._planned(takers).devices if takers else self.devices

    def _planned(self, takers: tuple[DeviceTaker, ...]) -> _Planned:
        planned = self._last_planned
        if planned is not None and planned.takers is takers and planned.changes == self._changes:
            return planned
        # Plans grow: most have the pods of the last one, and some more.
        is_longer = (
            planned is not None and planned.changes == self._changes and takers[: len(planned.takers)] == planned.takers
        )
        known, devices = (len(planned.takers), planned.devices) if planned and is_longer else (0, self.devices)
        planned = self._last_planned = _Planned(takers, self._changes, devices.copy())
        for taker in takers[known:]:
            planned.devices.take(taker)
        return planned

    def rejected(
        self, claims: Sequence[ResourceClaim], table: NodeTable, takers: tuple[DeviceTaker, ...] = ()
    ) -> Rejected:
        """The nodes that have no devices for claims beside planned pods.

        Args:
            claims: as ``claims_of`` of ``devices_beside`` gives them.
        """
        alike = without_names(claims)
        spend = self._effort.of(claims[0].namespace)
        rejected = self._rejected_beside(alike, table, takers, spend) if takers else self._rejected(alike, table, spend)
        self._objects.is_searched &= all(reason != REASON_LATER for reason, _ in rejected)
        return [(named(reason, claims), nodes) for reason, nodes in rejected]

    def _rejected(self, claims: NamelessClaims, table: NodeTable, spend: Spend) -> Rejected:
        answers = self._answers.get(claims)
        if answers is None:
            answers = _Answers()
            self._answers.put(claims, answers, _ANSWER_BYTES * len(table.nodes))
        known = answers.rejected
        if known is None or not known.is_of(table, self._last_change_of_pools, self._effort.rounds):
            known = answers.rejected = self._rejected_nodes(table, self._ask(claims, table, answers, spend))
        return known.rejected

    def _rejected_nodes(self, table: NodeTable, rejected: Rejected) -> _RejectedNodes:
        is_unfinished = any(reason == REASON_LATER for reason, _ in rejected)
        return _RejectedNodes(table, self._changes, rejected, self._effort.rounds if is_unfinished else None)

    def _rejected_beside(
        self, claims: NamelessClaims, table: NodeTable, takers: tuple[DeviceTaker, ...], spend: Spend
    ) -> Rejected:
        """Only nodes that reach something of a pool from which planned pods take are asked again."""
        planned = self._planned(takers)
        known = planned.rejected.get(claims)
        if known is not None and known.is_of(table, self._last_change_of_pools, self._effort.rounds):
            return known.rejected
        try:
            spend(LOOK_UP * len(table.nodes))
        except EffortSpentError:
            return _all_later(table)
        counted = self.devices.allocations
        taken = pools_of(each for key, each in planned.devices.allocations.items() if counted.get(key) != each)
        rejected = {reason: nodes.copy() for reason, nodes in self._rejected(claims, table, spend)}
        answers: dict[_Place, ClaimRejection | None] = {}
        is_allocated, extended = has_allocation(claims), extended_resources(claims)
        for row, node in enumerate(table.nodes):
            reached = reached_node(node, extended)
            node_pools = self._state.slices.node_pools(reached)
            if all(pool.pool_id not in taken for pool in node_pools.pools):
                continue
            for nodes in rejected.values():
                nodes[row] = False
            place = node_pools.number, reached if is_allocated else reached.offered
            if place not in answers:
                answer = planned.devices.answer(claims, reached, spend)
                answers[place] = answer if isinstance(answer, ClaimRejection) else None
            rejection = answers[place]
            if rejection is not None:
                rejected.setdefault(rejection.reason, np.zeros(len(table.nodes), dtype=np.bool_))[row] = True
        planned.rejected[claims] = self._rejected_nodes(table, _of_some(rejected.items()))
        return planned.rejected[claims].rejected

    def _ask(self, claims: NamelessClaims, table: NodeTable, answers: _Answers, spend: Spend) -> Rejected:
        try:
            spend(LOOK_UP * len(table.nodes))
        except EffortSpentError:
            return _all_later(table)
        rejected: dict[str, list[int]] = {}
        is_allocated, extended, places = has_allocation(claims), extended_resources(claims), set[_Place]()
        for row, node in enumerate(table.nodes):
            reached = reached_node(node, extended)
            node_pools = self._state.slices.node_pools(reached)
            place = node_pools.number, reached if is_allocated else reached.offered
            places.add(place)
            known = answers.by_place.get(place)
            if known is None or known.change < self._last_change(node_pools.pools):
                answer = self.devices.answer(claims, reached, spend)
                known = (
                    _Answer(self._changes, answer.reason)
                    if isinstance(answer, ClaimRejection)
                    else _Answer(self._changes, "", answer)
                )
                if known.reason != REASON_LATER:
                    answers.by_place[place] = known
            if known.reason:
                rejected.setdefault(known.reason, []).append(row)
        if len(answers.by_place) > 2 * len(places) + 100:  # those of nodes that are gone, or changed, pile up
            answers.by_place = {place: answer for place, answer in answers.by_place.items() if place in places}
        self._state.slices.retain(table.index)
        return [(reason, _at(rows, len(table.nodes))) for reason, rows in rejected.items()]


def _all_later(table: NodeTable) -> Rejected:
    return [(REASON_LATER, np.ones(len(table.nodes), dtype=np.bool_))]


def _of_some(rejected: Iterable[tuple[str, Bools]]) -> Rejected:
    """Without reasons that hold for no node."""
    return [(reason, nodes) for reason, nodes in rejected if nodes.any()]


def _at(rows: Sequence[int], count: int) -> Bools:
    nodes = np.zeros(count, dtype=np.bool_)
    nodes[list(rows)] = True
    return nodes
