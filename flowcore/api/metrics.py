"""NodeMetrics and PodMetrics of metrics.k8s.io: from objects to samples."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from flowcore.api.base import Quantities, Wire, to_seconds
from flowcore.api.durations import parse_seconds
from flowcore.model.errors import ModelError
from flowcore.model.quantities import milli_from_nanos, nanos, whole_from_nanos
from flowcore.model.resources import CPU, MEMORY
from flowcore.model.usage import UsageSample, check_time, checked_use

#: msgspec raises the last two for a text that is not UTF-8, and for values nested beyond Python's limit.
_UNREADABLE = msgspec.MsgspecError, UnicodeDecodeError, RecursionError
#: An object as it is in a list of the API server, or as a file of objects has it.
MetricsObject = msgspec.Raw | bytes | Mapping[str, Any]


class _WireMeta(Wire):
    name: str = ""
    namespace: str | None = None


class _WireIdentity(Wire):
    metadata: _WireMeta


class _WireNodeMetrics(Wire):
    metadata: _WireMeta
    timestamp: datetime
    window: str
    usage: Quantities


class _WireContainer(Wire):
    usage: Quantities
    name: str = ""


class _WirePodMetrics(Wire):
    metadata: _WireMeta
    timestamp: datetime
    window: str
    containers: list[_WireContainer]


_Shape = TypeVar("_Shape", _WireNodeMetrics, _WirePodMetrics, _WireIdentity)


def to_node_sample(item: MetricsObject, now: float) -> tuple[str, UsageSample]:
    """Name of the node, and its sample.

    Args:
        now: seconds since the epoch.

    Raises:
        ModelError: it cannot be one; the error names the object and the field.
    """
    wire = _decoded(item, _WireNodeMetrics, "NodeMetrics")
    name = wire.metadata.name
    return name, _sample(wire, [(wire.usage, "usage")], now, f"NodeMetrics {name}")


def to_pod_sample(item: MetricsObject, now: float) -> tuple[str, UsageSample]:
    """``namespace/name`` of the pod, and its sample: the sum over its containers.

    Args:
        now: seconds since the epoch.

    Raises:
        ModelError: it cannot be one; the error names the object and the field.
    """
    wire = _decoded(item, _WirePodMetrics, "PodMetrics")
    key = _key(wire.metadata)
    usages = [(container.usage, f"containers[{position}].usage") for position, container in enumerate(wire.containers)]
    return key, _sample(wire, usages, now, f"PodMetrics {key}")


def _sample(
    wire: _WireNodeMetrics | _WirePodMetrics, usages: list[tuple[Quantities, str]], now: float, shown: str
) -> UsageSample:
    timestamp, window = to_seconds(wire.timestamp), parse_seconds(wire.window)
    check_time(timestamp, now, f"{shown}: timestamp")
    if window is None:
        raise ModelError(f"{shown}: window", f'"{wire.window}" is not a duration such as 30s')
    cpu = memory = 0
    for usage, field in usages:
        cpu += _amount(usage, CPU, f"{shown}: {field}")
        memory += _amount(usage, MEMORY, f"{shown}: {field}")
    cpu_milli, memory_bytes = milli_from_nanos(cpu), whole_from_nanos(memory)
    checked_use(cpu_milli, f"{shown}: {CPU} of all containers")
    checked_use(memory_bytes, f"{shown}: {MEMORY} of all containers")
    return UsageSample(timestamp, float(window), cpu_milli, memory_bytes)


def _amount(usage: Quantities, name: str, field: str) -> int:
    """In billionths."""
    where = f"{field}.{name}"
    if name not in usage:
        raise ModelError(where, "required value")
    try:
        amount = nanos(usage[name])
    except ModelError as error:
        raise ModelError(where, error.problem) from None
    if amount < 0:
        raise ModelError(where, f'"{usage[name]}" is negative')
    checked_use(milli_from_nanos(amount) if name == CPU else whole_from_nanos(amount), where)
    return amount


def _decoded(item: MetricsObject, shape: type[_Shape], kind: str) -> _Shape:
    try:
        return _convert(item, shape)
    except _UNREADABLE as error:
        try:
            name = f" {_key(_convert(item, _WireIdentity).metadata)}"
        except _UNREADABLE:
            name = ""
        raise ModelError(f"{kind}{name}", str(error)) from None


def _convert(item: MetricsObject, shape: type[_Shape]) -> _Shape:
    if isinstance(item, (msgspec.Raw, bytes)):
        return msgspec.json.decode(item, type=shape)
    return msgspec.convert(item, shape)


def _key(metadata: _WireMeta) -> str:
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
