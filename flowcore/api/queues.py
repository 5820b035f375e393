"""FlowQueues: from their objects to model values."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from flowcore.api.base import Wire, WireMeta
from flowcore.api.durations import parse_policy_seconds
from flowcore.api.selectors import WireLabelSelector, parse_selector
from flowcore.model.errors import ModelError
from flowcore.model.queues import Queue, ReclaimMode
from flowcore.model.resources import Amounts, read_list, to_amounts
from flowcore.model.selectors import LabelSelector

KIND: Final = "FlowQueue"
PLURAL: Final = "flowqueues"
_Weight = Annotated[int, msgspec.Meta(ge=1, le=10**6)]
_Quantities = dict[str, str | int | float] | None


class WireQueueMeta(WireMeta):
    generation: int = 0


class WireQueueSelects(Wire):
    pod_selector: WireLabelSelector | None = None
    namespace_selector: WireLabelSelector | None = None


class WireReclaim(Wire):
    mode: ReclaimMode = Queue("").reclaim
    min_runtime: str = "5m"


class WireQueueSpec(Wire):
    parent: str | None = None
    weight: _Weight = 1
    guarantee: _Quantities = None
    limit: _Quantities = None
    selects: WireQueueSelects | None = None
    reclaim: WireReclaim | None = None


class WireQueue(Wire):
    metadata: WireQueueMeta
    spec: WireQueueSpec


def to_queue(wire: WireQueue) -> Queue:
    """A FlowQueue. What cannot be read is its ``problem``; the queue selects no pods then."""
    meta, spec = wire.metadata, wire.spec
    selects, reclaim = spec.selects or WireQueueSelects(), spec.reclaim or WireReclaim()
    try:
        return Queue(
            name=meta.name,
            uid=meta.uid or "",
            generation=meta.generation,
            parent=spec.parent or "",
            weight=spec.weight,
            guarantee=_amounts(spec.guarantee, "spec.guarantee"),
            limit=_amounts(spec.limit, "spec.limit"),
            pods=_selector(selects.pod_selector, "spec.selects.podSelector"),
            namespaces=_selector(selects.namespace_selector, "spec.selects.namespaceSelector"),
            reclaim=reclaim.mode,
            min_runtime=parse_policy_seconds(reclaim.min_runtime, "spec.reclaim.minRuntime"),
        )
    except ModelError as error:
        return unreadable_queue(meta, str(error))


def unreadable_queue(meta: WireQueueMeta, problem: str) -> Queue:
    """A queue that cannot be read: only its name is known."""
    return Queue(name=meta.name, uid=meta.uid or "", generation=meta.generation, problem=problem)


def _amounts(quantities: _Quantities, field: str) -> Amounts:
    """Amounts, zeros included: a limit of nothing is a limit."""
    read = read_list(quantities, field)
    amounts = dict(to_amounts(read)) | {name: 0 for name, amount in read.items() if not amount}
    unknown = sorted(read.keys() - amounts.keys())
    if unknown:
        raise ModelError(f"{field}.{unknown[0]}", "scheduling does not count this resource")
    return tuple(sorted(amounts.items()))


def _selector(wire: WireLabelSelector | None, field: str) -> LabelSelector | None:
    return None if wire is None else parse_selector(wire, field)
