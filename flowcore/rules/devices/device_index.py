"""Verdicts on devices for all nodes, remembered by what claims ask for, and kept while objects change one by one.

Claims that ask for the same get the same answer from a node as long as nothing of the pools that it reaches changes. So
the claims that a template makes for a thousand pods cost one search on each node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from flowcore.cluster.arrays.device_objects import ClaimKey, DeviceObjects
from flowcore.cluster.arrays.snapshot import Bools, NodeTable
from flowcore.model.generational_cache import GenerationalCache
from flowcore.model.resource_claims import ClaimAllocation, DeviceTaker, ResourceClaim
from flowcore.model.resource_slices import PoolId
from flowcore.model.selectors import Labels
from flowcore.rules.devices.allocation.allocated_devices import AllocatedDevices
from flowcore.rules.devices.allocation.pools import SliceIndex
from flowcore.rules.devices.claim_verdicts import DeviceState
from flowcore.rules.devices.claimable_devices import ClaimableDevices, pools_of
from flowcore.rules.devices.columns.column_sets import ColumnSets
from flowcore.rules.devices.device_selectors import DeviceSelectors
from flowcore.rules.devices.nameless_claims import NamelessClaims, named, nameless
from flowcore.rules.devices.node_reach import ReachedNode
from flowcore.rules.devices.pod_claims import ClaimRejection

#: Under which the objects keep the index.
_MEMO = "index"
#: Bytes of the answers that are kept, twice, and of one node's answer.
_MAX_BYTES, _ANSWER_BYTES = 2**26, 250

#: Reasons, each with the nodes that it holds for, bool[N].
Rejected = Sequence[tuple[str, Bools]]


@dataclass(slots=True)
class _Answers:
    """What nodes say to claims that ask for the same.

    Attributes:
        by_node: name -> the labels and the number of the last change that the answer is of, and the reason; "": it has
            the devices.
        rejected: nodes of a table, and the change that they are of.
    """

    by_node: dict[str, tuple[Labels, int, str]] = field(default_factory=dict)
    rejected: tuple[NodeTable, int, Rejected] | None = None


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
    rejected: dict[NamelessClaims, tuple[NodeTable, Rejected]] = field(default_factory=dict)


class DeviceIndex:
    """What verdicts read of a cluster's devices.

    Attributes:
        devices: those of the cluster, less what pods take that are on their way.
        columns: which of them are one resource for some requests, with the same taken.
    """

    def __init__(self, objects: DeviceObjects) -> None:
        self._objects = objects
        self._version = self._published = -1
        self._selectors = DeviceSelectors()
        self._allocated = AllocatedDevices()
        #: What claims have, and what is allocated with pods that are on their way.
        self._counted: dict[ClaimKey, ClaimAllocation] = {}
        self._known: dict[ClaimKey, ClaimAllocation] = {}
        #: How often something changed, and by pool after how many changes something of it did last.
        self._changes = 0
        self._changed_at: dict[PoolId, int] = {}
        self._answers: GenerationalCache[NamelessClaims, _Answers] = GenerationalCache(_MAX_BYTES)
        self._last_planned: _Planned | None = None
        self._state = DeviceState(SliceIndex(()), objects.classes, self._allocated, self._selectors)
        self.columns = ColumnSets(self._state.slices, self._selectors)
        self.devices = ClaimableDevices(self._state, objects.claims)

    @classmethod
    def of(cls, objects: DeviceObjects) -> DeviceIndex:
        """The index of some objects as they are now."""
        index: DeviceIndex | None = objects.memo.get(_MEMO)
        if index is None:
            index = objects.memo[_MEMO] = cls(objects)
        if index._version != objects.version:
            index._follow()
        return index

    def _follow(self) -> None:
        objects = self._objects
        if self._published != objects.published:
            slices = SliceIndex(objects.slices.values())
            self._state = DeviceState(slices, objects.classes, self._allocated, self._selectors)
            self._answers = GenerationalCache(_MAX_BYTES)
            self.columns.follow_slices(slices)
        self._version, self._published = objects.version, objects.published
        unread = objects.take_unread_claims()
        changed = unread if self._changes else set(objects.claims)
        for key in changed:
            self._count(key)
        changed |= self.devices.allocations.keys()
        self.devices = ClaimableDevices(self._state, objects.claims)
        for taker in objects.takers:
            self.devices.take(taker)
        self._changes += 1
        for key in changed | self.devices.allocations.keys():
            self._note(key, self._counted.get(key) or self.devices.allocations.get(key))

    def _count(self, key: ClaimKey) -> None:
        """Takes over what a claim has by now."""
        claim, before = self._objects.claims.get(key), self._counted.pop(key, None)
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
                    self._changed_at[pool] = self._changes

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
        alike = nameless(claims)
        rejected = self._rejected_beside(alike, table, takers) if takers else self._rejected(alike, table)
        return [(named(reason, claims), nodes) for reason, nodes in rejected]

    def _rejected(self, claims: NamelessClaims, table: NodeTable) -> Rejected:
        answers = self._answers.get(claims)
        if answers is None:
            answers = _Answers()
            self._answers.put(claims, answers, _ANSWER_BYTES * len(table.nodes))
        known = answers.rejected
        if known is None or known[0] is not table or known[1] != self._changes:
            known = answers.rejected = table, self._changes, self._ask(claims, table, answers)
        return known[2]

    def _rejected_beside(self, claims: NamelessClaims, table: NodeTable, takers: tuple[DeviceTaker, ...]) -> Rejected:
        """Only nodes that reach something of a pool from which planned pods take are asked again."""
        planned = self._planned(takers)
        known = planned.rejected.get(claims)
        if known is not None and known[0] is table:
            return known[1]
        counted = self.devices.allocations
        taken = pools_of(each for key, each in planned.devices.allocations.items() if counted.get(key) != each)
        rejected = {reason: nodes.copy() for reason, nodes in self._rejected(claims, table)}
        for row, node in enumerate(table.nodes):
            reached = ReachedNode(node.name, node.labels)
            if all(pool.pool_id not in taken for pool in self._state.slices.pools(reached)):
                continue
            for nodes in rejected.values():
                nodes[row] = False
            answer = planned.devices.answer(claims, reached)
            if isinstance(answer, ClaimRejection):
                rejected.setdefault(answer.reason, np.zeros(len(table.nodes), dtype=np.bool_))[row] = True
        planned.rejected[claims] = table, list(rejected.items())
        return planned.rejected[claims][1]

    def _ask(self, claims: NamelessClaims, table: NodeTable, answers: _Answers) -> Rejected:
        rejected: dict[str, list[int]] = {}
        for row, node in enumerate(table.nodes):
            reached = ReachedNode(node.name, node.labels)
            pools = self._state.slices.pools(reached)
            changed = max((self._changed_at.get(pool.pool_id, 0) for pool in pools), default=0)
            known = answers.by_node.get(node.name)
            if known is None or known[0] != node.labels or known[1] < changed:
                answer = self.devices.answer(claims, reached)
                reason = answer.reason if isinstance(answer, ClaimRejection) else ""
                known = answers.by_node[node.name] = node.labels, self._changes, reason
            if known[2]:
                rejected.setdefault(known[2], []).append(row)
        if len(answers.by_node) > 2 * len(table.nodes) + 100:  # nodes that are gone pile up
            answers.by_node = {name: answer for name, answer in answers.by_node.items() if name in table.index}
        return [(reason, _at(rows, len(table.nodes))) for reason, rows in rejected.items()]


def _at(rows: Sequence[int], count: int) -> Bools:
    nodes = np.zeros(count, dtype=np.bool_)
    nodes[list(rows)] = True
    return nodes
