"""The pools that a node reaches, with the devices that it may have of them.

Source: dynamic-resource-allocation structured (GatherPools). Pools, slices and devices come in kube-scheduler's order:
pools by name, those with binding conditions last; slices by name; devices as their slice lists them. For kube-scheduler
each node sees all pools with shared counters; here none sees those of one other node, of which it reaches nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from itertools import count

from flowcore.model.resource_slices import Device, DeviceId, NodeReach, PoolId, ResourceSlice
from flowcore.model.selectors import Labels
from flowcore.rules.devices.node_reach import NODE_NAME, ReachedNode, reaches

#: Counter set -> counter -> billionths.
Counters = Mapping[str, Mapping[str, Decimal]]
#: Stands for the name of a node beside keys of labels, which are not empty.
_NAME = ""


@dataclass(frozen=True)
class Pool:
    """A pool as a node sees it. Nodes that see the same of it have one object.

    Attributes:
        slices: with devices that the node may reach.
        unreached: slices of other nodes: their devices take counters of the same pool.
        counters: what the pool has of each shared counter.
        is_incomplete: its driver is still writing slices; nothing is allocated from it.
        problem: why nothing can be allocated from it at all, "" if something can.
    """

    pool_id: PoolId
    slices: tuple[ResourceSlice, ...] = ()
    unreached: tuple[ResourceSlice, ...] = ()
    counters: Counters = field(default_factory=dict)
    is_incomplete: bool = False
    problem: str = ""

    @property
    def is_usable(self) -> bool:
        """Whether its devices may be allocated."""
        return not self.is_incomplete and not self.problem

    @property
    def is_per_node(self) -> bool:
        """Whether nodes that see the same slices may reach other devices of them."""
        return any(each.per_device for each in self.slices)

    @cached_property
    def devices(self) -> tuple[PooledDevice, ...]:
        """The devices that a node may reach, in order."""
        driver, name = self.pool_id.driver, self.pool_id.pool
        return tuple(
            PooledDevice(DeviceId(driver, name, device.name), device, self, resource_slice)
            for resource_slice in self.slices
            for device in resource_slice.devices
        )

    @cached_property
    def consumers(self) -> tuple[PooledDevice, ...]:
        """The devices, of other nodes too, that take counters of it."""
        if not self.counters:
            return ()
        unreached = Pool(self.pool_id, self.unreached)
        return tuple(each for each in (*self.devices, *unreached.devices) if each.device.consumes)

    @cached_property
    def has_binding_conditions(self) -> bool:
        """Whether a driver has to confirm some of its devices."""
        return any(device.binding_conditions for each in self.slices for device in each.devices)


@dataclass(frozen=True, slots=True)
class PooledDevice:
    """A device with the slice and the pool that it is in."""

    device_id: DeviceId
    device: Device
    pool: Pool
    resource_slice: ResourceSlice

    @property
    def driver(self) -> str:
        """Its driver's name."""
        return self.device_id.driver


@dataclass(frozen=True, slots=True)
class NodePools:
    """The pools of which a node reaches something.

    Attributes:
        number: nodes with the same number have all of them in common, and the reach of each device.
    """

    pools: tuple[Pool, ...]
    number: int


class SliceIndex:
    """All slices of a cluster, by node and by pool."""

    def __init__(self, slices: Iterable[ResourceSlice]) -> None:
        self._by_node: dict[str, list[ResourceSlice]] = defaultdict(list)
        #: What several nodes may reach: slices by the labels that nodes must have, and those that name none.
        self._by_label: dict[tuple[str, str], list[ResourceSlice]] = defaultdict(list)
        self._labels = set[str]()
        self._anywhere: list[ResourceSlice] = []
        self._by_pool: dict[PoolId, list[ResourceSlice]] = defaultdict(list)
        self._numbers = count()
        #: By name of the node: its labels, and its pools with these.
        self._of_node: dict[str, tuple[Labels, NodePools]] = {}
        #: Pools by the slices that a node sees of them, and what a node reaches by the identities of its pools.
        self._pools: dict[tuple[PoolId, tuple[str, ...]], Pool | None] = {}
        self._shared_pools: dict[tuple[int, ...], NodePools] = {}
        #: Of slices whose devices name their nodes one by one: each name, and each other reach, once.
        self._reaches: dict[str, tuple[frozenset[str], frozenset[NodeReach]]] = {}
        in_order = sorted(slices, key=lambda each: each.name)
        for resource_slice in in_order:
            self._by_pool[resource_slice.pool_id].append(resource_slice)
        #: The node of each pool of which all slices name the same one.
        self._only_node: dict[PoolId, str] = {}
        for pool, slices_of_pool in self._by_pool.items():
            names = {each.reach.node_name for each in slices_of_pool if _reaches_some(each)}
            if len(names) == 1 and "" not in names:
                self._only_node[pool] = names.pop()
        for resource_slice in in_order:
            if self._names_its_node(resource_slice):
                self._by_node[resource_slice.reach.node_name].append(resource_slice)
            elif _reaches_some(resource_slice):
                self._share(resource_slice)

    def _share(self, resource_slice: ResourceSlice) -> None:
        labels = _needed_labels(resource_slice)
        if labels is None:
            self._anywhere.append(resource_slice)
            return
        for key, value in labels:
            if key == _NAME:
                self._by_node[value].append(resource_slice)
            else:
                self._labels.add(key)
                self._by_label[key, value].append(resource_slice)

    def _candidates(self, node: ReachedNode) -> Sequence[ResourceSlice]:
        """The slices that may concern a node, each once, by name."""
        own = self._by_node.get(node.name, ())
        if not (self._anywhere or self._labels):
            return own
        slices = {each.name: each for each in (*own, *self._anywhere)}
        for label in node.labels:
            if label[0] in self._labels:
                slices |= {each.name: each for each in self._by_label.get(label, ())}
        return [slices[name] for name in sorted(slices)]

    def _names_its_node(self, resource_slice: ResourceSlice) -> bool:
        """Whether one node alone needs a slice; counters may be those of devices that other nodes reach."""
        return bool(resource_slice.reach.node_name) and (
            not resource_slice.shared_counters or resource_slice.pool_id in self._only_node
        )

    def changed(self, slices: Iterable[ResourceSlice], pools: Collection[PoolId]) -> SliceIndex:
        """The index of other slices, of which those of these pools alone differ. It keeps what others do not touch."""
        index = SliceIndex(slices)
        index._numbers = self._numbers
        before = [each for pool in pools for each in self._by_pool.get(pool, ())]
        after = [each for pool in pools for each in index._by_pool.get(pool, ())]
        if all(map(self._names_its_node, before)) and all(map(index._names_its_node, after)):
            nodes = {each.reach.node_name for each in (*before, *after)}
            index._of_node = {name: known for name, known in self._of_node.items() if name not in nodes}
            index._pools = {key: pool for key, pool in self._pools.items() if key[0] not in pools}
        return index

    def is_of_node(self, pool: Pool, node: ReachedNode) -> bool:
        """Whether a node is the only one that reaches anything of a pool, by all slices that bear the pool's name.

        A driver may give the pools of two nodes one name: they have the same devices then, though each looks complete.
        """
        return self._only_node.get(pool.pool_id) == node.name

    def retain(self, names: Collection[str]) -> None:
        """Forgets what is remembered of nodes with other names, if it is much."""
        if len(self._of_node) > 2 * len(names) + 100:
            self._of_node = {name: known for name, known in self._of_node.items() if name in names}

    def pools(self, node: ReachedNode) -> tuple[Pool, ...]:
        """The pools of which a node reaches something; the same object while nothing of them changes."""
        return self.node_pools(node).pools

    def node_pools(self, node: ReachedNode) -> NodePools:
        """The pools of which a node reaches something, with the number of all nodes that reach the same."""
        known = self._of_node.get(node.name)
        if known is None or known[0] != node.labels:
            known = self._of_node[node.name] = node.labels, self._reached(node)
        return known[1]

    def _reached(self, node: ReachedNode) -> NodePools:
        newest: dict[PoolId, list[ResourceSlice]] = {}
        for resource_slice in self._candidates(node):
            if self._concerns(resource_slice, node):
                _keep_newest(newest.setdefault(resource_slice.pool_id, []), resource_slice)
        pools = [pool for pool_id in sorted(newest) if (pool := self._pool(pool_id, newest[pool_id])) is not None]
        pools.sort(key=lambda pool: pool.has_binding_conditions)
        if any(pool.is_per_node for pool in pools):
            return NodePools(tuple(pools), next(self._numbers))
        key = tuple(map(id, pools))
        if key not in self._shared_pools:
            self._shared_pools[key] = NodePools(tuple(pools), next(self._numbers))
        return self._shared_pools[key]

    def _concerns(self, resource_slice: ResourceSlice, node: ReachedNode) -> bool:
        """Whether a node needs a slice: it reaches a device, or the slice has counters of the pool."""
        if resource_slice.shared_counters:
            return True
        if resource_slice.reach.is_stated:
            return reaches(resource_slice.reach, node)
        if not resource_slice.per_device:
            return False
        known = self._reaches.get(resource_slice.name)
        if known is None:
            stated = {device.reach for device in resource_slice.devices}
            known = self._reaches[resource_slice.name] = (
                frozenset(reach.node_name for reach in stated if reach.node_name),
                frozenset(reach for reach in stated if not reach.node_name),
            )
        names, others = known
        return node.name in names or any(reaches(reach, node) for reach in others)

    def _pool(self, pool_id: PoolId, slices: list[ResourceSlice]) -> Pool | None:
        key = pool_id, tuple(each.name for each in slices)
        if key not in self._pools:
            self._pools[key] = self._made_pool(pool_id, slices)
        return self._pools[key]

    def _made_pool(self, pool_id: PoolId, slices: list[ResourceSlice]) -> Pool | None:
        """The pool, None if a newer generation of it has nothing for the node."""
        generation, slice_count = slices[0].generation, slices[0].slice_count
        every = slices
        if len(slices) != slice_count:
            # Slices that only other nodes reach count for completeness.
            known = self._by_pool[pool_id]
            if any(each.generation > generation for each in known):
                return None
            every = [each for each in known if each.generation == generation]
            if len(every) != slice_count:
                return Pool(pool_id, is_incomplete=True)
        reached = {each.name for each in slices}
        return _checked(pool_id, slices, [each for each in every if each.name not in reached])


def whole_pool(pool_id: PoolId, slices: Collection[ResourceSlice]) -> Pool | None:
    """All of a pool, whoever reaches it; None: its newest generation is not complete, or contradicts itself."""
    generation = max((each.generation for each in slices), default=0)
    newest = [each for each in slices if each.generation == generation]
    if not newest or len(newest) != newest[0].slice_count:
        return None
    pool = _checked(pool_id, newest, ())
    return pool if pool.is_usable else None


def _needed_labels(resource_slice: ResourceSlice) -> set[tuple[str, str]] | None:
    """Labels of which a node that reaches a slice has one, and names of nodes as ``_NAME``; None: nothing says so."""
    if resource_slice.shared_counters:
        return None
    if resource_slice.per_device and not resource_slice.reach.is_stated:
        reaches_of_devices = {device.reach for device in resource_slice.devices}
    else:
        reaches_of_devices = {resource_slice.reach}
    needed = set[tuple[str, str]]()
    for reach in reaches_of_devices:
        labels = _labels_of_reach(reach)
        if labels is None:
            return None
        needed |= labels
    return needed


def _labels_of_reach(reach: NodeReach) -> set[tuple[str, str]] | None:
    if reach.node_name:
        return {(_NAME, reach.node_name)}
    if reach.all_nodes:
        return None
    needed = set[tuple[str, str]]()
    for term in reach.terms or ():
        if term.selects_nothing:
            continue
        # Of several such requirements all hold: the one with the fewest values says most.
        listed = [(_NAME, each.values) for each in term.fields if each.operator == "In" and each.key == NODE_NAME]
        listed += [(each.key, each.values) for each in term.expressions if each.operator == "In"]
        if not listed:
            return None
        key, values = min(listed, key=lambda requirement: len(requirement[1]))
        needed |= {(key, value) for value in values}
    return needed


def _reaches_some(resource_slice: ResourceSlice) -> bool:
    """Whether a slice says which nodes need it."""
    return resource_slice.reach.is_stated or resource_slice.per_device or bool(resource_slice.shared_counters)


def _keep_newest(slices: list[ResourceSlice], resource_slice: ResourceSlice) -> None:
    if slices and resource_slice.generation < slices[0].generation:
        return
    if slices and resource_slice.generation > slices[0].generation:
        slices.clear()
    slices.append(resource_slice)


def _checked(pool_id: PoolId, slices: Sequence[ResourceSlice], unreached: Sequence[ResourceSlice]) -> Pool:
    slices = sorted(slices, key=lambda each: each.name)
    with_devices = tuple(each for each in slices if not each.shared_counters)
    counters: dict[str, dict[str, Decimal]] = {}
    for counter_set in (each for resource_slice in slices for each in resource_slice.shared_counters):
        if counter_set.name in counters:
            return Pool(pool_id, problem=f"duplicate counter set name {counter_set.name}")
        counters[counter_set.name] = dict(counter_set.counters)
    problem = _duplicate_device(with_devices) or _unknown_counter(counters, (*slices, *unreached))
    return Pool(pool_id, problem=problem) if problem else Pool(pool_id, with_devices, tuple(unreached), counters)


def _duplicate_device(slices: Iterable[ResourceSlice]) -> str:
    names = set[str]()
    for device in (each for resource_slice in slices for each in resource_slice.devices):
        if device.name in names:
            return f"duplicate device name {device.name}"
        names.add(device.name)
    return ""


def _unknown_counter(counters: Counters, slices: Iterable[ResourceSlice]) -> str:
    for consumption in (
        each for resource_slice in slices for device in resource_slice.devices for each in device.consumes
    ):
        if consumption.name not in counters:
            return f"counter set {consumption.name} not found"
        for name, _ in consumption.counters:
            if name not in counters[consumption.name]:
                return f"counter {name} not found in counter set {consumption.name}"
    return ""
