"""Allocations as the API server stores them in ``status.allocation`` of a claim.

Source: dynamic-resource-allocation structured (Allocate, where it makes its result).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from flowcore.api.base import Wire
from flowcore.api.nesting import DEEPEST, is_deeper
from flowcore.model.quantities import NANO
from flowcore.model.resource_claims import (
    AllocatedDevice,
    ClaimAllocation,
    ClaimRequest,
    DeviceRequest,
    DeviceToleration,
    ResourceClaim,
)
from flowcore.model.selectors import NodeSelectorTerm, Requirement

_Object = dict[str, Any]

#: Levels of what a driver is told. Of objects that are nested deeper than ``DEEPEST`` levels not all is known.
_DEEPEST_CONFIG: Final = DEEPEST // 2


class WireDeviceConfig(Wire):
    """What a driver is told of the devices of some requests, or of all if none is named. Nobody else reads it."""

    requests: list[str] | None = None
    opaque: dict[str, Any] | None = None

    @property
    def is_copyable(self) -> bool:
        """Whether an allocation can say the same."""
        return not is_deeper(self.opaque, _DEEPEST_CONFIG)


_config = msgspec.json.Decoder(WireDeviceConfig)


def config_text(config: WireDeviceConfig) -> str:
    """A config of a class as its value has it; "": it is not copyable."""
    return msgspec.json.encode(config).decode() if config.is_copyable else ""


def read_config(text: str) -> WireDeviceConfig | None:
    """The config of such a text; None: it is not copyable."""
    return _config.decode(text) if text else None


def allocation_object(
    claim: ResourceClaim,
    allocation: ClaimAllocation,
    claim_config: Sequence[WireDeviceConfig],
    class_config: Mapping[str, Sequence[WireDeviceConfig]],
    new_share_id: Callable[[], str],
) -> _Object:
    """An allocation that was planned for a claim.

    Args:
        claim_config: of the claim.
        class_config: of each class of its requests, by name.
        new_share_id: draws the identity (a UUID) of a share of a device.
    """
    chosen = _chosen(claim, allocation)
    results = [_result(each, chosen[each.request], new_share_id) for each in allocation.devices]
    config = [*_class_config(chosen, class_config), *_claim_config(claim, claim_config, chosen)]
    made: _Object = {"devices": {"results": results} | _unless_empty("config", config)}
    if allocation.terms is not None:
        made["nodeSelector"] = {"nodeSelectorTerms": [_term(term) for term in allocation.terms]}
    return made


def _chosen(claim: ResourceClaim, allocation: ClaimAllocation) -> dict[str, DeviceRequest]:
    """Reference of each request, or of the alternative that serves it, in the claim's order."""
    references = {device.request for device in allocation.devices}
    return {
        reference: alternative
        for request in claim.requests
        for alternative in request.alternatives
        if (reference := request.reference(alternative)) in references
    }


def _result(allocated: AllocatedDevice, request: DeviceRequest, new_share_id: Callable[[], str]) -> _Object:
    result: _Object = {
        "request": allocated.request,
        "driver": allocated.device.driver,
        "pool": allocated.device.pool,
        "device": allocated.device.device,
    }
    if allocated.admin_access:
        result["adminAccess"] = True
    if allocated.share_id is not None:
        result["shareID"] = allocated.share_id or new_share_id()
    consumed = {name: _quantity(int(amount)) for name, amount in allocated.consumed}
    return (
        result
        | _unless_empty("tolerations", list(map(_toleration, request.tolerations)))
        | _unless_empty("bindingConditions", list(allocated.binding_conditions))
        | _unless_empty("bindingFailureConditions", list(allocated.failure_conditions))
        | _unless_empty("consumedCapacity", consumed)
    )


def _class_config(
    chosen: Mapping[str, DeviceRequest], class_config: Mapping[str, Sequence[WireDeviceConfig]]
) -> Iterable[_Object]:
    """The config of each class once, for all requests of the class."""
    requests: dict[str, list[str]] = {}
    for reference, request in chosen.items():
        requests.setdefault(request.device_class, []).append(reference)
    for name, references in requests.items():
        for config in class_config[name]:
            yield {"source": "FromClass", "requests": references} | _unless_empty("opaque", config.opaque)


def _claim_config(
    claim: ResourceClaim, claim_config: Sequence[WireDeviceConfig], chosen: Mapping[str, DeviceRequest]
) -> Iterable[_Object]:
    """The claim's config once if it is for all requests, else once for each request that it is for."""
    for config in claim_config:
        made: _Object = {"source": "FromClaim"} | _unless_empty("opaque", config.opaque)
        if not config.requests:
            yield made
        for request in claim.requests:
            if _concerns(config.requests or (), request, chosen):
                yield made | {"requests": config.requests}


def _concerns(names: Sequence[str], request: ClaimRequest, chosen: Mapping[str, DeviceRequest]) -> bool:
    references = map(request.reference, request.alternatives)
    return request.name in names or any(each in names and each in chosen for each in references)


def _quantity(amount: int) -> str:
    return str(amount // NANO) if amount % NANO == 0 else f"{amount}n"


def _toleration(toleration: DeviceToleration) -> _Object:
    made: _Object = _unless_empty("key", toleration.key) | {"operator": toleration.operator}
    made |= _unless_empty("value", toleration.value) | _unless_empty("effect", toleration.effect)
    return made if toleration.seconds is None else made | {"tolerationSeconds": toleration.seconds}


def _term(term: NodeSelectorTerm) -> _Object:
    return _unless_empty("matchExpressions", list(map(_requirement, term.expressions))) | _unless_empty(
        "matchFields", list(map(_requirement, term.fields))
    )


def _requirement(requirement: Requirement) -> _Object:
    made: _Object = {"key": requirement.key, "operator": requirement.operator}
    return made | _unless_empty("values", list(requirement.values))


def _unless_empty(name: str, value: Any) -> _Object:
    return {name: value} if value else {}
