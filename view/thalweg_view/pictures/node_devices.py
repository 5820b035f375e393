"""Devices of the nodes, as drivers publish them: how many there are, how many claims have, how many a round adds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from flowcore.model.resource_claims import ClaimAllocation, DeviceTaker
from flowcore.model.resource_slices import DeviceId, ResourceSlice
from flowcore.planning.plan_document import PlanDocument
from flowcore.rules.devices.device_index import DeviceIndex
from thalweg_view.view_data import ViewData

#: Most drivers that are told, and most planned pods whose devices are looked for: a search takes up to a millisecond.
_MOST_DRIVERS, _MOST_PODS = 16, 2000


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """Devices of one driver, by name of the node that alone reaches them.

    Attributes:
        there: how many its slices have.
        used: how many of these claims have, a share of a device too.
        planned: how many more the round's placements take.
    """

    there: Counter[str] = field(default_factory=Counter)
    used: Counter[str] = field(default_factory=Counter)
    planned: Counter[str] = field(default_factory=Counter)


def node_devices(data: ViewData, plan: PlanDocument | None) -> dict[str, NodeDevices]:
    """Devices by driver, those of the drivers with the most devices.

    A round with nodes of its own has none: its claims are not known.
    """
    if plan is not None and plan.nodes is not None:
        return {}
    objects = data.scenario.cluster.devices
    slices = _newest(each for each in objects.slices.values() if each.reach.node_name)
    node_of = {
        DeviceId(published.driver, published.pool, device.name): published.reach.node_name
        for published in slices
        for device in published.devices
    }
    by_driver: dict[str, NodeDevices] = {}
    for device, node in node_of.items():
        by_driver.setdefault(device.driver, NodeDevices()).there[node] += 1
    known = {device for claim in objects.claims.values() for device in _devices(claim.allocation)}
    for device in known & node_of.keys():
        by_driver[device.driver].used[node_of[device]] += 1
    for device in (_planned(data, plan) - known) & node_of.keys():
        by_driver[device.driver].planned[node_of[device]] += 1
    most = sorted(by_driver, key=lambda driver: (-by_driver[driver].there.total(), driver))[:_MOST_DRIVERS]
    return {driver: by_driver[driver] for driver in most}


def _newest(slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    """Without those that a newer generation of their pool replaces."""
    all_slices = list(slices)
    newest: dict[object, int] = {}
    for each in all_slices:
        newest[each.pool_id] = max(each.generation, newest.get(each.pool_id, 0))
    return [each for each in all_slices if each.generation == newest[each.pool_id]]


def _planned(data: ViewData, plan: PlanDocument | None) -> set[DeviceId]:
    """What placed pods would take of devices that wait for theirs."""
    takers = tuple(islice(_takers(data, plan), _MOST_PODS)) if plan is not None else ()
    if not takers:
        return set()
    allocations = DeviceIndex.of(data.scenario.cluster.devices).devices_beside(takers).allocations
    return {device for allocation in allocations.values() for device in _devices(allocation)}


def _takers(data: ViewData, plan: PlanDocument) -> Iterator[DeviceTaker]:
    cluster = data.scenario.cluster
    for placement in plan.placements:
        pod, node = cluster.waiting.get(plan.pending[placement.pod].key), cluster.nodes.get(placement.node)
        if pod is not None and node is not None and pod.pod_class.devices is not None:
            yield DeviceTaker(pod.pod_class.devices, node.name, node.labels)


def _devices(allocation: ClaimAllocation | None) -> Iterator[DeviceId]:
    """The devices of an allocation that others do not have too."""
    if allocation is not None:
        yield from (each.device for each in allocation.devices if not each.admin_access)
