"""Devices of a cluster in numbers: how many drivers publish for each node, and how many of them claims have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from flowcore.cluster.arrays.device_objects import DeviceObjects
from flowcore.model.resource_claims import EXACT_COUNT, ClaimAllocation, ClaimRequest, DeviceRequest, DeviceTaker
from flowcore.model.resource_slices import DeviceId, PoolId, ResourceSlice
from flowcore.rules.devices.device_index import DeviceIndex

#: Most drivers that are counted one by one: those with the most devices. The others are one.
MOST_DRIVERS: Final = 16
OTHER_DRIVERS: Final = "other drivers'"


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """Devices of one driver, by name of the node that alone reaches them; "" for those of several nodes.

    Devices count as their driver publishes them: partitions of one GPU are several, and not all can be had at once.

    Attributes:
        published: how many its slices have.
        taken: how many of these claims have, a share of a device too.
    """

    published: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)


def asked_for(request: ClaimRequest) -> str:
    """What a request asks for, for people: "2 of class gpu or 4 of class small"."""
    return " or ".join(map(_number_and_class, request.alternatives)) or "devices in a way that is not known"


def _number_and_class(request: DeviceRequest) -> str:
    return f"{request.count if request.mode == EXACT_COUNT else 'all'} of class {request.device_class}"


def devices_of(driver: str) -> str:
    """What stands for a driver's devices among the names of resources; no resource has such a name."""
    return f"{driver} devices"


def device_use(objects: DeviceObjects, takers: tuple[DeviceTaker, ...] = ()) -> dict[str, DeviceUse]:
    """Devices by driver; those of ``OTHER_DRIVERS`` together, if there are many drivers.

    Args:
        takers: planned pods, which take devices beside those that claims have.
    """
    node_of = {
        DeviceId(resource_slice.driver, resource_slice.pool, device.name): resource_slice.reach.node_name
        for resource_slice in _newest(objects.slices.values())
        for device in resource_slice.devices
    }
    if not node_of:
        return {}
    by_driver: dict[str, DeviceUse] = {}
    for device, node in node_of.items():
        by_driver.setdefault(device.driver, DeviceUse()).published[node] += 1
    taken = {device for claim in objects.claims.values() for device in _devices(claim.allocation)}
    if takers:
        planned = DeviceIndex.of(objects).devices_beside(takers).allocations
        taken.update(device for allocation in planned.values() for device in _devices(allocation))
    for device in taken & node_of.keys():
        by_driver[device.driver].taken[node_of[device]] += 1
    drivers = sorted(by_driver, key=lambda driver: (-by_driver[driver].published.total(), driver))
    uses = {driver: by_driver[driver] for driver in drivers[:MOST_DRIVERS]}
    for driver in drivers[MOST_DRIVERS:]:
        others = uses.setdefault(OTHER_DRIVERS, DeviceUse())
        others.published.update(by_driver[driver].published)
        others.taken.update(by_driver[driver].taken)
    return uses


def _newest(slices: Iterable[ResourceSlice]) -> Iterator[ResourceSlice]:
    """Without those that a newer generation of their pool replaces."""
    all_slices = list(slices)
    newest: dict[PoolId, int] = {}
    for resource_slice in all_slices:
        pool, generation = resource_slice.pool_id, resource_slice.generation
        newest[pool] = max(generation, newest.get(pool, 0))
    return (each for each in all_slices if each.generation == newest[each.pool_id])


def _devices(allocation: ClaimAllocation | None) -> Iterator[DeviceId]:
    """The devices of an allocation that others do not have too."""
    if allocation is not None:
        yield from (result.device for result in allocation.devices if not result.admin_access)
