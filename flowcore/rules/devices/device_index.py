"""Verdicts on devices for all nodes, remembered by what claims ask for, and kept while objects change one by one.

Claims that ask for the same get the same answer from a node as long as nothing of the pools that it reaches changes. So
the claims that a template makes for a thousand pods cost one search on each node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from flowcore.cluster.arrays.device_objects import ClaimKey, DeviceObjects
from flowcore.cluster.arrays.node_matching import term_matches
from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable
from flowcore.model.devices import DeviceClass
from flowcore.model.generational_cache import GenerationalCache
from flowcore.model.resource_claims import ClaimAllocation, DeviceTaker, ResourceClaim
from flowcore.model.resource_slices import PoolId, ResourceSlice
from flowcore.rules.devices.allocation.allocated_devices import AllocatedDevices
from flowcore.rules.devices.allocation.pools import Pool, SliceIndex
from flowcore.rules.devices.claim_verdicts import (
    REASON_ELSEWHERE,
    DeviceState,
    alternatives_score,
    are_allocated,
    has_alternatives,
)
from flowcore.rules.devices.claimable_devices import ClaimableDevices, has_allocation, pools_of
from flowcore.rules.devices.columns.column_sets import ColumnSets
from flowcore.rules.devices.device_selectors import DeviceSelectors
from flowcore.rules.devices.nameless_claims import NamelessClaims, extended_resources, named, without_names
from flowcore.rules.devices.node_reach import ReachedNode, reached_node
from flowcore.rules.devices.pod_claims import ERROR, UNRESOLVABLE, ClaimRejection
from flowcore.rules.devices.search_effort import (
    LOOK_UP,
    REASON_LATER,
    SELECTED_BY_UNIT,
    EffortSpentError,
    SearchEffort,
    Spend,
)

#: Under which the objects keep the index.
_MEMO = "index"
#: Bytes of the answers that are kept, twice, and of one node's answer.
_MAX_BYTES, _ANSWER_BYTES = 2**26, 750
#: The same of what a round reads of them.
_MAX_READ_BYTES, _READ_BYTES = 2**24, 16

#: Number of a node's pools, and what it offers itself in place of devices; for claims with allocations the node.
_Place = tuple[int, ReachedNode | tuple[str, ...]]
#: What nodes say to claims that ask for the same.
_Answers = dict[_Place, "_Answer"]
#: Reasons, each with the nodes that it holds for, bool[N].
Rejected = Sequence[tuple[str, Bools]]


@dataclass(frozen=True, slots=True)
class _NodeAnswers:
    """What the nodes of a table say to some claims.

    Attributes:
        change: the number of the last change that they are of.
        rejected: nodes without devices.
        errors: nodes on which the search ends in an error.
        scores: int64[N], of what the claims get (``alternatives_score``); None: they have no alternatives.
        unfinished: the round in which some were left for later; None: all were searched.
    """

    table: NodeTable
    change: int
    rejected: Rejected
    errors: Rejected
    scores: Int64s | None
    unfinished: int | None

    def is_of(self, table: NodeTable, change: int, this_round: int) -> bool:
        """Whether they still are what would be found."""
        return self.table is table and self.change >= change and self.unfinished in (None, this_round)

    def holds_for(self, table: NodeTable, change: int) -> bool:
        """Whether it still is what nodes of another table say that have not changed: none came or went."""
        return self.table.index is table.index and self.change >= change and self.unfinished is None


class _Answer(NamedTuple):
    """What a node says.

    Attributes:
        change: the number of the last change that it is of.
        reason: why it has no devices; "": it has them.
        allocations: what the claims get.
        score: of that.
        is_error: the search ends in an error.
    """

    change: int
    reason: str
    allocations: tuple[ClaimAllocation, ...] = ()
    score: int = 0
    is_error: bool = False


@dataclass(slots=True)
class _Planned:
    """Devices beside more planned pods, for as long as the same pods are asked about.

    Attributes:
        changes: how often the objects had changed.
        nodes: what those of a table say to claims.
    """

    takers: tuple[DeviceTaker, ...]
    changes: int
    devices: ClaimableDevices
    nodes: dict[NamelessClaims, _NodeAnswers] = field(default_factory=dict)


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
        self._nodes: GenerationalCache[NamelessClaims, _NodeAnswers] = GenerationalCache(_MAX_READ_BYTES)
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
        known = None if answers is None else answers.get(place)
        if known is None or known.change < self._last_change(pools):
            return None
        if known.reason:
            return ClaimRejection(known.reason, ERROR if known.is_error else UNRESOLVABLE)
        return known.allocations

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
            self._answers, self._nodes = GenerationalCache(_MAX_BYTES), GenerationalCache(_MAX_READ_BYTES)
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
        """The nodes that have no devices for claims beside planned pods, those with ``errors`` aside.

        Args:
            claims: as ``claims_of`` of ``devices_beside`` gives them.
        """
        nodes = self._answers_of(claims, table, takers)
        self._objects.is_searched &= all(reason != REASON_LATER for reason, _ in nodes.rejected)
        return [(named(reason, claims), rows) for reason, rows in nodes.rejected]

    def errors(
        self, claims: Sequence[ResourceClaim], table: NodeTable, takers: tuple[DeviceTaker, ...] = ()
    ) -> Rejected:
        """The nodes on which a search ends in an error; for the arguments see ``rejected``."""
        return [(named(reason, claims), rows) for reason, rows in self._answers_of(claims, table, takers).errors]

    def without_devices(
        self, claims: Sequence[ResourceClaim], table: NodeTable, takers: tuple[DeviceTaker, ...] = ()
    ) -> Bools:
        """bool[N]: the nodes that have no devices, for whatever reason; for the arguments see ``rejected``."""
        without = np.zeros(len(table.nodes), dtype=np.bool_)
        for _, nodes in (*self.rejected(claims, table, takers), *self.errors(claims, table, takers)):
            without |= nodes
        return without

    def scores(
        self, claims: Sequence[ResourceClaim], table: NodeTable, takers: tuple[DeviceTaker, ...] = ()
    ) -> Int64s | None:
        """int64[N]: how early the alternatives are that nodes have for claims beside planned pods.

        None: the claims have no alternatives. For the arguments see ``rejected``, for the numbers
        ``alternatives_score``; those of nodes without devices have no meaning.
        """
        return self._answers_of(claims, table, takers).scores if has_alternatives(claims) else None

    def _answers_of(
        self, claims: Sequence[ResourceClaim], table: NodeTable, takers: tuple[DeviceTaker, ...]
    ) -> _NodeAnswers:
        alike, spend = without_names(claims), self._effort.of(claims[0].namespace)
        if are_allocated(alike):
            return self._answers_reaching(alike, table, spend)
        return self._answers_beside(alike, table, takers, spend) if takers else self._answers_begun(alike, table, spend)

    def _answers_reaching(self, claims: NamelessClaims, table: NodeTable, spend: Spend) -> _NodeAnswers:
        """Which nodes reach what claims have: nothing is searched, and no device counts."""
        known = self._nodes.get(claims)
        if known is not None and known.table is table:
            return known
        reached, count = np.ones(len(table.nodes), dtype=np.bool_), len(table.nodes)
        try:
            for claim in claims:
                if claim.allocation is None or claim.allocation.terms is None:
                    continue
                selected = np.zeros(count, dtype=np.bool_)
                for term in claim.allocation.terms:
                    spend(1 + count // SELECTED_BY_UNIT)
                    selected |= term_matches(term, table)
                reached &= selected
        except EffortSpentError:
            return self._all_later(claims, table)
        without = () if reached.all() else ((REASON_ELSEWHERE, ~reached),)
        known = _NodeAnswers(table, self._changes, without, (), None, None)
        self._nodes.put(claims, known, _READ_BYTES * count)
        return known

    def _answers_begun(self, claims: NamelessClaims, table: NodeTable, spend: Spend) -> _NodeAnswers:
        known = self._nodes.get(claims)
        if known is not None and known.is_of(table, self._last_change_of_pools, self._effort.rounds):
            return known
        answers = self._answers.get(claims)
        if answers is None:
            answers = {}
            self._answers.put(claims, answers, _ANSWER_BYTES * len(table.nodes))
        rows: Sequence[int] = range(len(table.nodes))
        if known is not None and known.holds_for(table, self._last_change_of_pools):
            pairs = zip(known.table.nodes, table.nodes, strict=True)
            rows = [row for row, (before, now) in enumerate(pairs) if before is not now]
        else:
            known = None
        try:
            spend(LOOK_UP * len(rows))
            known = self._asked(claims, table, known, rows, partial(self._ask, claims, answers, spend))
        except EffortSpentError:
            known = self._all_later(claims, table)
        if len(answers) > 2 * len(table.nodes) + 100:  # those of nodes that are gone, or changed, pile up
            self._answers.put(claims, {}, _ANSWER_BYTES * len(table.nodes))
        self._nodes.put(claims, known, _READ_BYTES * len(table.nodes))
        self._state.slices.retain(table.index)
        return known

    def _answers_beside(
        self, claims: NamelessClaims, table: NodeTable, takers: tuple[DeviceTaker, ...], spend: Spend
    ) -> _NodeAnswers:
        """Only nodes that reach something of a pool from which planned pods take are asked again."""
        planned = self._planned(takers)
        known = planned.nodes.get(claims)
        if known is not None and known.is_of(table, self._last_change_of_pools, self._effort.rounds):
            return known
        try:
            spend(LOOK_UP * len(table.nodes))
        except EffortSpentError:
            return self._all_later(claims, table)
        counted, extended = self.devices.allocations, extended_resources(claims)
        taken = pools_of(each for key, each in planned.devices.allocations.items() if counted.get(key) != each)
        rows = [
            row
            for row, node in enumerate(table.nodes)
            if any(pool.pool_id in taken for pool in self._state.slices.pools(reached_node(node, extended)))
        ]
        answers: dict[_Place, _Answer] = {}

        def ask(node: ReachedNode, place: _Place, _pools: tuple[Pool, ...]) -> _Answer:
            if place not in answers:
                answers[place] = self._answer(claims, planned.devices.answer(claims, node, spend))
            return answers[place]

        begun = self._answers_begun(claims, table, spend)
        planned.nodes[claims] = self._asked(claims, table, begun, rows, ask)
        return planned.nodes[claims]

    def _asked(
        self,
        claims: NamelessClaims,
        table: NodeTable,
        known: _NodeAnswers | None,
        rows: Sequence[int],
        ask: Callable[[ReachedNode, _Place, tuple[Pool, ...]], _Answer],
    ) -> _NodeAnswers:
        """What all nodes say: as is known, but those of some rows as they are asked now."""
        count, is_allocated, extended = len(table.nodes), has_allocation(claims), extended_resources(claims)
        scores = _no_scores(claims, count) if known is None or known.scores is None else known.scores.copy()
        begun = () if known is None else ((known.rejected, False), (known.errors, True))
        rejected = {(reason, is_error): nodes.copy() for each, is_error in begun for reason, nodes in each}
        for nodes in rejected.values():
            nodes[rows] = False
        now: dict[tuple[str, bool], list[int]] = {}
        for row in rows:
            node = reached_node(table.nodes[row], extended)
            node_pools = self._state.slices.node_pools(node)
            answer = ask(node, (node_pools.number, node if is_allocated else node.offered), node_pools.pools)
            if answer.reason:
                now.setdefault((answer.reason, answer.is_error), []).append(row)
            elif scores is not None:
                scores[row] = answer.score
        for key, rejecting in now.items():
            rejected.setdefault(key, np.zeros(count, dtype=np.bool_))[rejecting] = True
        left = {key: nodes for key, nodes in rejected.items() if nodes.any()}
        without, errors = (
            [(reason, nodes) for (reason, is_error), nodes in left.items() if is_error is which]
            for which in (False, True)
        )
        is_unfinished = any(reason == REASON_LATER for reason, _ in without)
        return _NodeAnswers(
            table, self._changes, without, errors, scores, self._effort.rounds if is_unfinished else None
        )

    def _ask(
        self, claims: NamelessClaims, answers: _Answers, spend: Spend, node: ReachedNode, place: _Place,
        pools: tuple[Pool, ...],
    ) -> _Answer:  # fmt: skip
        known = answers.get(place)
        if known is None or known.change < self._last_change(pools):
            known = self._answer(claims, self.devices.answer(claims, node, spend))
            if known.reason != REASON_LATER:
                answers[place] = known
        return known

    def _answer(self, claims: NamelessClaims, answer: tuple[ClaimAllocation, ...] | ClaimRejection) -> _Answer:
        if isinstance(answer, ClaimRejection):
            return _Answer(self._changes, answer.reason, is_error=answer.ends_attempt)
        return _Answer(self._changes, "", answer, alternatives_score(claims, answer))

    def _all_later(self, claims: NamelessClaims, table: NodeTable) -> _NodeAnswers:
        later = [(REASON_LATER, np.ones(len(table.nodes), dtype=np.bool_))]
        return _NodeAnswers(table, self._changes, later, (), _no_scores(claims, len(table.nodes)), self._effort.rounds)


def _no_scores(claims: NamelessClaims, count: int) -> Int64s | None:
    """int64[count], zeros; None: the claims have no alternatives."""
    return np.zeros(count, dtype=np.int64) if has_alternatives(claims) else None
