"""Devices of the nodes, as drivers publish them: how many there are, how many claims have, how many a round adds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from flowcore.model.resource_claims import DeviceTaker
from flowcore.planning.plan_document import PlanDocument
from flowcore.questions.scenario.device_use import DeviceUse, device_use
from flowcore.rules.devices.node_reach import device_taker
from thalweg_view.view_data import ViewData

#: Most planned pods whose devices are looked for: a search takes up to a millisecond.
_MOST_PODS: Final = 2000


class NodeDevices(NamedTuple):
    """Devices of the nodes.

    Attributes:
        by_driver: before the round's placements and with them.
        unsearched: pods that the round places whose devices are not among them.
    """

    by_driver: dict[str, tuple[DeviceUse, DeviceUse]]
    unsearched: int


def node_devices(data: ViewData, plan: PlanDocument | None) -> NodeDevices:
    """Devices by driver. A round with nodes of its own has none: its claims are not known."""
    if plan is not None and plan.nodes is not None:
        return NodeDevices({}, 0)
    objects = data.scenario.cluster.devices
    before = device_use(objects)
    takers = tuple(_takers(data, plan)) if plan is not None else ()
    after = device_use(objects, takers[:_MOST_PODS]) if takers else before
    by_driver = {driver: (use, after[driver]) for driver, use in before.items() if use.published.keys() != {""}}
    return NodeDevices(by_driver, max(0, len(takers) - _MOST_PODS) if by_driver else 0)


def _takers(data: ViewData, plan: PlanDocument) -> Iterator[DeviceTaker]:
    cluster = data.scenario.cluster
    for placement in plan.placements:
        pod, node = cluster.waiting.get(plan.pending[placement.pod].key), cluster.nodes.get(placement.node)
        if pod is not None and node is not None and pod.pod_class.devices is not None:
            yield device_taker(pod.pod_class.devices, node)
