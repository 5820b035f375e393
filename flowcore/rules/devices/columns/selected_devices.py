"""The devices that requests of one kind may get, by node, followed while slices and nodes change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, NodeTable
from flowcore.model.resource_slices import Device, DeviceId, ResourceSlice
from flowcore.rules.devices.allocation.pools import Pool, SliceIndex
from flowcore.rules.devices.allocation.requested_devices import taints_keep_out
from flowcore.rules.devices.cel import CelProblem
from flowcore.rules.devices.columns.request_kinds import RequestKind
from flowcore.rules.devices.device_selectors import DeviceSelectors
from flowcore.rules.devices.node_reach import ReachedNode
from flowcore.rules.devices.search_effort import EffortSpentError, Spend, unlimited


class _Matches(NamedTuple):
    """What a slice has of a kind.

    Attributes:
        counted: devices that are had alone and as a whole.
        uncounted: others.
        errs: an expression errs for some device; no search gives that to a request of the kind.
    """

    counted: tuple[DeviceId, ...]
    uncounted: tuple[DeviceId, ...]
    errs: bool


class _OfNode(NamedTuple):
    """What a node has of a kind.

    Attributes:
        pools: in which it was looked for.
        shared: those of them that other nodes reach too, by identity.
        matches: what it has of the others.
    """

    pools: tuple[Pool, ...]
    shared: Mapping[int, Pool]
    matches: _Matches


class SelectedDevices:
    """All devices that requests of one kind may get, wherever they are.

    Args:
        is_held: whether a claim has a device.

    Attributes:
        node_of: the node of each device that one node alone reaches, and that is had alone and as a whole.
        uncounted: other devices.
    """

    def __init__(self, kind: RequestKind, selectors: DeviceSelectors, is_held: Callable[[DeviceId], bool]) -> None:
        self._kind, self._selectors, self._is_held = kind, selectors, is_held
        self.node_of: dict[DeviceId, str] = {}
        self.uncounted = frozenset[DeviceId]()
        self._errs = False
        #: By slice, and by node.
        self._matches: dict[str, tuple[ResourceSlice, _Matches]] = {}
        self._by_node: dict[str, _OfNode] = {}
        self._taken_on = Counter[str]()
        #: int64[N] for the nodes of a table.
        self._counts: tuple[Mapping[str, int], Int64s] | None = None

    @property
    def is_countable(self) -> bool:
        """Whether numbers of devices say which requests fit."""
        return not (self.uncounted or self._errs)

    def counts(self, table: NodeTable) -> Int64s:
        """int64[N]: how many devices each node has, whoever has them; not to be changed."""
        if self._counts is None or self._counts[0] is not table.index:
            sizes = {name: len(each.matches.counted) for name, each in self._by_node.items()}
            self._counts = table.index, by_row(sizes, table)
        return self._counts[1]

    def counts_taken(self, table: NodeTable) -> Int64s:
        """int64[N]: how many of them claims have."""
        return by_row(self._taken_on, table)

    def take(self, device: DeviceId, number: int) -> None:
        """The first claim gets a device, 1, or the last one loses it, -1."""
        node = self.node_of.get(device)
        if node is not None:
            self._taken_on[node] += number

    def follow(self, slices: SliceIndex, nodes: Iterable[ReachedNode], spend: Spend = unlimited) -> bool:
        """All slices, and all nodes, as they are now; whether the devices are others.

        Raises:
            EffortSpentError: ``spend`` does. The next call goes on.
        """
        before, self._matches = self._matches, {}
        now, shared = dict[str, _OfNode](), dict[int, Pool]()
        try:
            for node in nodes:
                pools, known = slices.pools(node), self._by_node.get(node.name)
                if known is not None and known.pools is pools:
                    now[node.name] = known
                    own = (pool for pool in pools if id(pool) not in known.shared)
                    for resource_slice in (each for pool in own for each in pool.slices):
                        if resource_slice.name in before:
                            self._matches[resource_slice.name] = before[resource_slice.name]
                else:
                    now[node.name] = self._of_pools(slices, node, before, spend)
                if now[node.name].shared:
                    shared |= now[node.name].shared
            shared_matches = self._of_slices((each for pool in shared.values() for each in pool.slices), before, spend)
        except EffortSpentError:
            self._matches = before | self._matches
            raise
        changed = self._follow_nodes(now)
        uncounted = frozenset(device for each in now.values() for device in each.matches.uncounted)
        uncounted |= frozenset((*shared_matches.counted, *shared_matches.uncounted))
        self._errs = shared_matches.errs or any(each.matches.errs for each in now.values())
        changed |= uncounted != self.uncounted
        self.uncounted = uncounted
        return changed

    def _follow_nodes(self, now: dict[str, _OfNode]) -> bool:
        before, self._by_node = self._by_node, now
        changed = [name for name in before.keys() | now if before.get(name) is not now.get(name)]
        if not changed:
            return False
        for name in changed:  # first all that are gone: a device may come to another node
            for device in before[name].matches.counted if name in before else ():
                self.take(device, -self._is_held(device))
                del self.node_of[device]
        for name in changed:
            for device in now[name].matches.counted if name in now else ():
                self.node_of[device] = name
                self.take(device, self._is_held(device))
        self._counts = None
        return True

    def _of_pools(
        self,
        slices: SliceIndex,
        node: ReachedNode,
        before: Mapping[str, tuple[ResourceSlice, _Matches]],
        spend: Spend,
    ) -> _OfNode:
        pools = slices.pools(node)
        usable = [pool for pool in pools if pool.is_usable]
        own = [pool for pool in usable if slices.is_of_node(pool, node)]
        shared = {id(pool): pool for pool in usable if not slices.is_of_node(pool, node)}
        matches = self._of_slices((each for pool in own for each in pool.slices), before, spend)
        return _OfNode(pools, shared, matches)

    def _of_slices(
        self,
        slices: Iterable[ResourceSlice],
        before: Mapping[str, tuple[ResourceSlice, _Matches]],
        spend: Spend,
    ) -> _Matches:
        counted, uncounted, errs = list[DeviceId](), list[DeviceId](), False
        for resource_slice in slices:
            known = self._matches.get(resource_slice.name) or before.get(resource_slice.name)
            if known is None or known[0] is not resource_slice:
                known = resource_slice, self._match(resource_slice, spend)
            self._matches[resource_slice.name] = known
            counted += known[1].counted
            uncounted += known[1].uncounted
            errs |= known[1].errs
        return _Matches(tuple(counted), tuple(uncounted), errs)

    def _match(self, resource_slice: ResourceSlice, spend: Spend) -> _Matches:
        driver, pool = resource_slice.driver, resource_slice.pool
        counted, uncounted, errs = list[DeviceId](), list[DeviceId](), False
        for device in resource_slice.devices:
            if not (device.is_selectable and device.is_allocatable):
                continue
            selects = self._selects(driver, device, spend)
            errs |= selects is None
            if selects and not taints_keep_out(device.taints, self._kind.tolerations):
                (counted if _is_had_alone(device) else uncounted).append(DeviceId(driver, pool, device.name))
        return _Matches(tuple(counted), tuple(uncounted), errs)

    def _selects(self, driver: str, device: Device, spend: Spend) -> bool | None:
        """Whether a device is selected; None: an expression errs."""
        for expression in self._kind.expressions:
            answer = None if expression is None else self._selectors.matches(expression, driver, device, spend)
            if answer is None or isinstance(answer, CelProblem):
                return None
            if not answer:
                return False
        return True


def by_row(amounts: Mapping[str, int], table: NodeTable) -> Int64s:
    """int64[N]: amounts by name of the node; names of other nodes are passed over."""
    counts: Int64s = np.zeros(len(table.nodes), dtype=np.int64)
    rows = [table.index.get(name, -1) for name in amounts]
    known = np.array(rows, dtype=np.int64) >= 0
    counts[np.array(rows, dtype=np.int64)[known]] = np.array(list(amounts.values()), dtype=np.int64)[known]
    return counts


def _is_had_alone(device: Device) -> bool:
    """Whether who has a device takes nothing but it, and all of it, and need not wait for its driver."""
    return not (device.consumes or device.allow_multiple or device.binding_conditions)
