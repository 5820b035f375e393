"""A pod whose claims get no devices: how many there are of what it asks for, how many are free, and how many on a node.

Numbers of devices are those of all nodes, and are told to those who may read nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.resource_claims import EXACT_COUNT, ClaimRequest, DeviceRequest, ResourceClaim
from flowcore.model.resource_slices import DeviceAttribute, DeviceId
from flowcore.questions.diagnosis.finding import UnplacedCase
from flowcore.rules.devices.allocation.attribute_constraints import attribute_of
from flowcore.rules.devices.columns.request_kinds import RequestKind, kind_of
from flowcore.rules.devices.columns.selected_devices import SelectedDevices
from flowcore.rules.devices.device_index import DeviceIndex
from flowcore.rules.devices.pod_claims import ClaimRejection, named_claims
from flowcore.rules.filters import dynamic_resources

#: Most requests that are explained.
_MOST = 2


def claimed_devices(pod: UnplacedCase) -> Iterator[str]:
    """A sentence for each request of the pod's claims that have no devices, beside all that the plan places."""
    claiming, snapshot = pod.unplaced.pod.pod_class.devices, pod.plan.result.after
    if claiming is None or not pod.context.nodes:
        return
    if isinstance(dynamic_resources.claimable_devices(snapshot).claims_of(claiming), ClaimRejection):
        return
    requests = (
        (name, claim, request, alternative)
        for name, claim in named_claims(claiming, snapshot.devices.claims).items()
        if claim.allocation is None
        for request in claim.requests
        for alternative in request.alternatives
        if alternative.mode == EXACT_COUNT
    )
    for name, claim, request, alternative in islice(requests, _MOST):
        what = f"Claim {name}, request {request.reference(alternative)}"
        yield f"{what} {_sentence(claim, request, alternative, snapshot)}"


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
    taken = dynamic_resources.claimable_devices(snapshot).is_taken
    free = {device: node for device, node in selected.node_of.items() if not taken(device)}
    text = f"{text}, {'none is' if not free else '1 is' if len(free) == 1 else f'{len(free):,} are'} free"
    if len(free) < asks.count or asks.count == 1:
        return f"{text}."
    on_node = max(Counter(free.values()).values())
    if on_node < asks.count:
        return f"{text}, at most {on_node} on one node."
    attribute = _in_common(claim, request, asks)
    if not attribute:
        return f"{text}, {on_node} of them on one node."
    together = _most_together(free, attribute, snapshot)
    return f"{text}, at most {together} on one node with the same {attribute}."


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
