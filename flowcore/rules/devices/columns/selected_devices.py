"""The devices that requests of one kind may get, by node, followed while slices and nodes change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, NodeTable
from flowcore.model.resource_slices import Device, DeviceId, ResourceSlice
from flowcore.rules.devices.allocation.device_taints import taints_keep_out
from flowcore.rules.devices.allocation.pools import Pool, SliceIndex
from flowcore.rules.devices.cel import CelProblem
from flowcore.rules.devices.columns.request_kinds import RequestKind
from flowcore.rules.devices.device_selectors import DeviceSelectors
from flowcore.rules.devices.node_reach import ReachedNode

#: Devices of a slice that can be counted, and others; None: an expression errs.
_Matches = tuple[tuple[DeviceId, ...], tuple[DeviceId, ...]] | None


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
        #: Nodes on which an expression errs.
        self._erring = set[str]()
        #: By slice, what it has; by node, the pools that it reached and what they had.
        self._matches: dict[str, tuple[ResourceSlice, _Matches]] = {}
        self._by_node: dict[str, tuple[tuple[Pool, ...], tuple[DeviceId, ...], tuple[DeviceId, ...]]] = {}
        self._taken_on = Counter[str]()
        #: int64[N] for the nodes of a table.
        self._counts: tuple[Mapping[str, int], Int64s] | None = None

    @property
    def is_countable(self) -> bool:
        """Whether numbers of devices say which requests fit."""
        return not (self.uncounted or self._erring)

    @property
    def is_known(self) -> bool:
        """Whether every expression could be evaluated, so that all devices are known."""
        return not self._erring

    def counts(self, table: NodeTable) -> Int64s:
        """int64[N]: how many devices each node has, whoever has them; not to be changed."""
        if self._counts is None or self._counts[0] is not table.index:
            sizes = {name: len(counted) for name, (_, counted, _) in self._by_node.items() if counted}
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

    def follow(self, slices: SliceIndex, nodes: Iterable[ReachedNode]) -> bool:
        """All slices, and all nodes, as they are now; whether the devices are others."""
        before, self._matches = self._matches, {}
        anew = dict[str, tuple[tuple[DeviceId, ...], tuple[DeviceId, ...]]]()
        reached = set[str]()
        for node in nodes:
            reached.add(node.name)
            pools = slices.pools(node)
            known = self._by_node.get(node.name)
            if known is not None and known[0] is pools:
                for pool in pools:
                    self._matches.update((each.name, before[each.name]) for each in pool.slices if each.name in before)
                continue
            counted, uncounted = self._of_pools(pools, node, before)
            if known is None or known[1:] != (counted, uncounted):
                anew[node.name] = () if known is None else known[1], counted
            self._by_node[node.name] = pools, counted, uncounted
        for name in self._by_node.keys() - reached:
            anew[name] = self._by_node.pop(name)[1], ()
            self._erring.discard(name)
        if not anew:
            return False
        for left, _ in anew.values():  # first all: a device may come to another node
            for device in left:
                self.take(device, -self._is_held(device))
                del self.node_of[device]
        for name, (_, come) in anew.items():
            for device in come:
                self.node_of[device] = name
                self.take(device, self._is_held(device))
        self.uncounted = frozenset(device for _, _, others in self._by_node.values() for device in others)
        self._counts = None
        return True

    def _of_pools(
        self,
        pools: tuple[Pool, ...],
        node: ReachedNode,
        before: Mapping[str, tuple[ResourceSlice, _Matches]],
    ) -> tuple[tuple[DeviceId, ...], tuple[DeviceId, ...]]:
        counted, uncounted = list[DeviceId](), list[DeviceId]()
        self._erring.discard(node.name)
        for pool in pools:
            if not pool.is_usable:
                continue
            is_local = is_of_node(pool, node)
            for resource_slice in pool.slices:
                known = self._matches.get(resource_slice.name) or before.get(resource_slice.name)
                if known is None or known[0] is not resource_slice:
                    known = resource_slice, self._match(resource_slice)
                self._matches[resource_slice.name] = known
                if known[1] is None:
                    self._erring.add(node.name)
                    continue
                (counted if is_local else uncounted).extend(known[1][0])
                uncounted += known[1][1]
        return tuple(counted), tuple(uncounted)

    def _match(self, resource_slice: ResourceSlice) -> _Matches:
        driver, pool = resource_slice.driver, resource_slice.pool
        counted, uncounted = list[DeviceId](), list[DeviceId]()
        for device in resource_slice.devices:
            selects = self._selects(driver, device)
            if selects is None:
                return None
            if selects and not taints_keep_out(device.taints, self._kind.tolerations):
                (counted if _is_had_alone(device) else uncounted).append(DeviceId(driver, pool, device.name))
        return tuple(counted), tuple(uncounted)

    def _selects(self, driver: str, device: Device) -> bool | None:
        """Whether a device is selected; None: an expression errs."""
        for expression in self._kind.expressions:
            answer = None if expression is None else self._selectors.matches(expression, driver, device)
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


def is_of_node(pool: Pool, node: ReachedNode) -> bool:
    """Whether a node is the only one that reaches a pool."""
    return not (pool.unreached or pool.counters) and all(each.reach.node_name == node.name for each in pool.slices)


def _is_had_alone(device: Device) -> bool:
    """Whether who has a device takes nothing but it, and all of it, and need not wait for its driver."""
    return not (device.consumes or device.allow_multiple or device.binding_conditions)
