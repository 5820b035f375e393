"""A pod whose claims get no devices: how many there are of what it asks for, how many are free, and how many on a node.

Numbers of devices are those of all nodes, and are told to those who may read nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.resource_claims import EXACT_COUNT, ClaimingPod, ClaimRequest, DeviceRequest, ResourceClaim
from flowcore.model.resource_slices import DeviceAttribute, DeviceId
from flowcore.questions.diagnosis.finding import UnplacedCase
from flowcore.rules.devices.allocation.attribute_constraints import attribute_of
from flowcore.rules.devices.columns.request_kinds import RequestKind, kind_of
from flowcore.rules.devices.columns.selected_devices import SelectedDevices
from flowcore.rules.devices.device_index import DeviceIndex
from flowcore.rules.devices.node_reach import offered_by
from flowcore.rules.devices.pod_claims import ClaimRejection, named_claims
from flowcore.rules.filters import dynamic_resources

#: Most requests and resources that are explained.
_MOST = 2


def claimed_devices(pod: UnplacedCase) -> Iterator[str]:
    """Sentences about devices that the pod lacks, beside all that the plan places.

    One for each request of its claims that have no devices, and for each extended resource that is devices.
    """
    claiming, snapshot = pod.unplaced.pod.pod_class.devices, pod.plan.result.after
    if claiming is None or not pod.context.nodes:
        return
    if isinstance(dynamic_resources.claimable_devices(snapshot).claims_of(claiming), ClaimRejection):
        return
    sentences = (*_of_claims(claiming, snapshot), *_of_resources(claiming, snapshot))
    yield from islice(sentences, _MOST)


def _of_claims(claiming: ClaimingPod, snapshot: Snapshot) -> Iterator[str]:
    requests = (
        (name, claim, request, alternative)
        for name, claim in named_claims(claiming, snapshot.devices.claims).items()
        if claim.allocation is None
        for request in claim.requests
        for alternative in request.alternatives
        if alternative.mode == EXACT_COUNT
    )
    for name, claim, request, alternative in requests:
        what = f"Claim {name}, request {request.reference(alternative)}"
        yield f"{what} {_sentence(claim, request, alternative, snapshot)}"


def _of_resources(claiming: ClaimingPod, snapshot: Snapshot) -> Iterator[str]:
    for resource in claiming.extended_resources:
        asked = [each.exactly for each in claiming.extended if each.resource == resource and each.exactly is not None]
        offering = {node.name for node in snapshot.table.nodes if offered_by(node, (resource,))}
        kind, count = kind_of(asked[0], snapshot.devices.classes), sum(each.count for each in asked)
        selected = DeviceIndex.of(snapshot.devices).columns.selected(kind, snapshot.table)
        usable = {device: node for device, node in selected.node_of.items() if node not in offering}
        where = f" on nodes that do not offer {resource} themselves" if offering else ""
        what = f"Extended resource {resource} asks for {count} of class {kind.device_class}"
        number = len(usable) + len(selected.uncounted)
        if not number or not selected.is_countable:
            yield f"{what}: {_match(number)}{where}."
            continue
        text, _ = _free(usable, count, snapshot)
        yield f"{what}: {_match(number)}{where}{text}."


def _sentence(claim: ResourceClaim, request: ClaimRequest, asks: DeviceRequest, snapshot: Snapshot) -> str:
    kind, index = kind_of(asks, snapshot.devices.classes), DeviceIndex.of(snapshot.devices)
    selected = index.columns.selected(kind, snapshot.table)
    number = _number(selected)
    text = f"asks for {asks.count}: {_match(number)}"
    if not number:
        device_class = snapshot.devices.classes[kind.device_class]
        of_class = RequestKind(device_class.name, device_class.selectors, kind.tolerations)
        of_kind = _number(index.columns.selected(of_class, snapshot.table))
        return f"{text}, of {of_kind:,} of class {device_class.name}."
    if not selected.is_countable:
        return f"{text}."
    numbers, free = _free(selected.node_of, asks.count, snapshot)
    attribute = _in_common(claim, request, asks)
    if not attribute or asks.count == 1 or max(Counter(free.values()).values(), default=0) < asks.count:
        return f"{text}{numbers}."
    together = _most_together(free, attribute, snapshot)
    return f"{text}, {_are(len(free))} free, at most {together} on one node with the same {attribute}."


def _free(node_of: Mapping[DeviceId, str], count: int, snapshot: Snapshot) -> tuple[str, dict[DeviceId, str]]:
    """How many of some devices are free and, where so many of them would do, how many on one node; and the free ones.

    Args:
        node_of: the node of each device.
        count: how many are asked for on one node.
    """
    taken = dynamic_resources.claimable_devices(snapshot).is_taken
    free = {device: node for device, node in node_of.items() if not taken(device)}
    text = f", {_are(len(free))} free"
    if len(free) < count or count == 1:
        return text, free
    on_node = max(Counter(free.values()).values())
    return f"{text}, {f'at most {on_node}' if on_node < count else f'{on_node} of them'} on one node", free


def _are(number: int) -> str:
    return "none is" if not number else "1 is" if number == 1 else f"{number:,} are"


def _number(selected: SelectedDevices) -> int:
    return len(selected.node_of) + len(selected.uncounted)


def _match(number: int) -> str:
    return "no device matches" if not number else "1 device matches" if number == 1 else f"{number:,} devices match"


def _in_common(claim: ResourceClaim, request: ClaimRequest, asks: DeviceRequest) -> str:
    """The first attribute that the devices of a request must have in common; "": none."""
    names: Sequence[str] = (request.name, request.reference(asks))
    for constraint in claim.constraints:
        concerns = not constraint.requests or any(name in constraint.requests for name in names)
        if constraint.match_attribute and concerns:
            return constraint.match_attribute
    return ""


def _most_together(free: dict[DeviceId, str], attribute: str, snapshot: Snapshot) -> int:
    """How many free devices of one node have one value of an attribute, at most."""
    together = Counter[tuple[str, DeviceAttribute]]()
    for resource_slice in snapshot.devices.slices.values():
        for device in resource_slice.devices:
            node = free.get(DeviceId(resource_slice.driver, resource_slice.pool, device.name))
            value = None if node is None else attribute_of(device, resource_slice.driver, attribute)
            if node is not None and value is not None:
                together[node, value] += 1
    return max(together.values(), default=0)
