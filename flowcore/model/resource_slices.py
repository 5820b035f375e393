"""Devices that a driver publishes, and the pools that they are in.

Source: resource/v1 ResourceSlice. Amounts are in billionths, exact, as quantities are compared; whole Decimals, since
those of 18 GiB do not fit the 64 bits of an integer that is sent to the worker. Who computes with them makes integers.
"""

from __future__ import annotations

from decimal import Decimal

import msgspec

from flowcore.model.selectors import NodeSelectorTerm

#: Name -> billionths, sorted by name.
DeviceAmounts = tuple[tuple[str, Decimal], ...]


class PoolId(msgspec.Struct, frozen=True, gc=False, order=True):
    """A pool: its name is unique among those of its driver."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class DeviceId(msgspec.Struct, frozen=True, gc=False, order=True):
    """A device of a cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class DeviceAttribute(msgspec.Struct, frozen=True, gc=False):
    """The value of an attribute, with its type: 1, true and "1" are not the same.

    Attributes:
        kind: ``int``, ``bool``, ``string`` or ``version`` (semver 2.0.0, as its driver wrote it); "" for a type that no
            plan reads, such as a list.
    """

    kind: str
    value: int | bool | str = ""


class ValidRange(msgspec.Struct, frozen=True, gc=False):
    """Amounts that may be requested of a capacity, in billionths; None where the driver sets no such limit.

    Attributes:
        in_thousandths: False: steps count in whole units, since a feature gate is off (``device_gates``).
    """

    least: Decimal | None = None
    most: Decimal | None = None
    step: Decimal | None = None
    in_thousandths: bool = True


class RequestPolicy(msgspec.Struct, frozen=True, gc=False):
    """What requests of a capacity may ask for, in billionths.

    Attributes:
        default: what a request takes that names no amount; None: all of the capacity.
        valid_values: ascending; a request takes the least one that it fits in. Empty for none.
        valid_range: None for none.
    """

    default: Decimal | None = None
    valid_values: tuple[Decimal, ...] = ()
    valid_range: ValidRange | None = None


class DeviceCapacity(msgspec.Struct, frozen=True, gc=False):
    """An amount that a device has, in billionths, and how claims may share it."""

    value: Decimal
    policy: RequestPolicy | None = None


class CounterSet(msgspec.Struct, frozen=True, gc=False):
    """Counters of a pool, or what a device takes of them.

    Attributes:
        name: of the set in its pool.
        counters: what there is, or is taken, of each.
    """

    name: str
    counters: DeviceAmounts


class DeviceTaint(msgspec.Struct, frozen=True, gc=False):
    """A taint of a device."""

    key: str
    value: str
    effect: str


class NodeReach(msgspec.Struct, frozen=True, gc=False):
    """The nodes that reach a slice or a device. Of several the first counts: a name, all nodes, a selector.

    Attributes:
        terms: any of them; None without a selector.
    """

    node_name: str = ""
    all_nodes: bool = False
    terms: tuple[NodeSelectorTerm, ...] | None = None

    @property
    def is_stated(self) -> bool:
        """False if nothing says which nodes reach it."""
        return bool(self.node_name) or self.all_nodes or self.terms is not None


class Device(msgspec.Struct, frozen=True, gc=False):
    """A device, or a partition of one.

    Attributes:
        attributes: qualified name, without a domain for those of the driver's own, -> value; sorted by name.
        capacity: the same for amounts.
        consumes: what it takes of its pool's shared counters while it is allocated.
        reach: its nodes, if its slice says so device by device.
        binds_to_node: an allocation of it holds on the node alone that it was made for.
        binding_conditions: what its driver confirms before a pod may be bound.
        failure_conditions: by which its driver says that it never will.
        allow_multiple: several claims may have shares of it at once.
        is_selectable: False: for claims it is not there, since a feature gate is off (``device_gates``).
        is_allocatable: False: claims do not get it, since a feature gate is off.
    """

    name: str
    attributes: tuple[tuple[str, DeviceAttribute], ...] = ()
    capacity: tuple[tuple[str, DeviceCapacity], ...] = ()
    consumes: tuple[CounterSet, ...] = ()
    taints: tuple[DeviceTaint, ...] = ()
    reach: NodeReach = NodeReach()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    failure_conditions: tuple[str, ...] = ()
    allow_multiple: bool = False
    is_selectable: bool = True
    is_allocatable: bool = True


class ResourceSlice(msgspec.Struct, frozen=True, gc=False):
    """Some of the devices, or the shared counters, of a pool.

    Attributes:
        generation: of the pool; slices of older ones are out of date.
        slice_count: how many slices of this generation the pool has once it is complete.
        reach: which nodes reach its devices.
        per_device: each device says so itself.
    """

    name: str
    driver: str
    pool: str
    generation: int = 0
    slice_count: int = 0
    reach: NodeReach = NodeReach()
    per_device: bool = False
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()

    @property
    def pool_id(self) -> PoolId:
        """The pool that it belongs to."""
        return PoolId(self.driver, self.pool)
