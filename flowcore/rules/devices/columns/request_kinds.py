"""What requests ask for, as numbers of devices of some kinds: what a column of room can say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from flowcore.model.devices import DeviceClass
from flowcore.model.resource_claims import (
    EXACT_COUNT,
    MAX_DEVICES,
    AttributeConstraint,
    ClaimRequest,
    DeviceRequest,
    DeviceToleration,
)

#: By name.
Classes = Mapping[str, DeviceClass]


class RequestKind(NamedTuple):
    """Requests that the same devices serve.

    Attributes:
        device_class: name of the class.
        expressions: of the class and of the request: all of them hold; None for one of a kind that is not known.
        offered: the extended resource in whose place devices are, if some node offers it: there pods need no device.
            "": there is none.
    """

    device_class: str
    expressions: tuple[str | None, ...]
    tolerations: tuple[DeviceToleration, ...]
    offered: str = ""


#: How many devices of each kind, each kind once.
Numbers = tuple[tuple[RequestKind, int], ...]


def numbers_of(
    requests: Sequence[ClaimRequest],
    constraints: Sequence[AttributeConstraint],
    classes: Classes,
    offered: AbstractSet[str] = frozenset(),
) -> Numbers:
    """What a claim asks for as numbers of devices; () if numbers do not say it.

    Args:
        classes: those that the requests name are there.
        offered: extended resources that some nodes offer.
    """
    numbers: dict[RequestKind, int] = {}
    for request in requests:
        exactly = request.exactly
        if constraints or exactly is None or request.first_available or not _is_number(exactly):
            return ()
        kind = kind_of(exactly, classes, _offered(request, offered))
        numbers[kind] = numbers.get(kind, 0) + exactly.count
    return tuple(numbers.items()) if sum(numbers.values()) <= MAX_DEVICES else ()


def kinds_of(
    requests: Sequence[ClaimRequest], classes: Classes, offered: AbstractSet[str] = frozenset()
) -> tuple[RequestKind, ...]:
    """The kinds of all requests of a claim that take devices, alternatives among them; admin access takes none."""
    return tuple(
        kind_of(alternative, classes, _offered(request, offered))
        for request in requests
        for alternative in request.alternatives
        if not alternative.admin_access
    )


def kind_of(request: DeviceRequest, classes: Classes, offered: str = "") -> RequestKind:
    """The kind of a request whose class is there.

    Args:
        offered: see ``RequestKind``.
    """
    selectors = classes[request.device_class].selectors
    return RequestKind(request.device_class, (*selectors, *request.selectors), request.tolerations, offered)


def _offered(request: ClaimRequest, offered: AbstractSet[str]) -> str:
    return request.resource if request.resource in offered else ""


def _is_number(request: DeviceRequest) -> bool:
    return request.mode == EXACT_COUNT and request.count > 0 and not request.admin_access and not request.capacity
