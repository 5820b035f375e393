"""``spec.network`` of a policy: from JSON to a NetworkSpec."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final, TypeVar

import msgspec

from flowcore.api.selectors import WireLabelSelector, parse_selector
from flowcore.model.errors import PolicyError
from flowcore.model.network_checks import check_network
from flowcore.model.networks import (
    Aggregator,
    ArcCost,
    CostPart,
    NetworkArc,
    NetworkSpec,
    Over,
    PodArc,
    PodEnd,
    Segment,
    SomeUnits,
    UnitCost,
    UnitCount,
    Weight,
)


class _Segment(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    unit_cost: UnitCost = msgspec.field(name="each")
    up_to: SomeUnits | None = None


class _PartOfCost(msgspec.Struct, forbid_unknown_fields=True):
    of: CostPart
    weight: Weight = 1


class _Arc(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    to: str
    cost: Any = 0
    minimum: UnitCount = 0
    maximum: UnitCount | None = None
    gain: str | int = 1
    whole_or_none: bool = False


class _Over(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    node_label: str | None = None
    node_selector: WireLabelSelector | None = None
    pod_selector: WireLabelSelector | None = None


class _Aggregator(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    over: _Over = msgspec.field(default_factory=_Over)
    arcs: list[_Arc] = msgspec.field(default_factory=list)


class _From(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    pod_selector: WireLabelSelector | None = None
    running_pods: WireLabelSelector | None = None


class _PodArc(_Arc, kw_only=True, rename={"tail": "from"}, forbid_unknown_fields=True):
    tail: _From
    whole_or_none: bool = msgspec.field(default=False, name="wholeOrNone")


class WireNetwork(msgspec.Struct, forbid_unknown_fields=True):
    """``spec.network``."""

    aggregators: list[_Aggregator] = msgspec.field(default_factory=list)
    arcs: list[_PodArc] = msgspec.field(default_factory=list)


_FIELD: Final = "spec.network"
_GAIN: Final = re.compile(r"\d{1,7}(?:/0*[1-9]\d{0,6})?", re.ASCII)
_T = TypeVar("_T")


def parse_network(wire: WireNetwork) -> NetworkSpec:
    """The network of a policy.

    Raises:
        PolicyError: it contradicts itself; the error names the field.
    """
    aggregators = []
    for place, aggregator in enumerate(wire.aggregators):
        field = f"{_FIELD}.aggregators[{place}]"
        arcs = (_parse_arc(arc, f"{field}.arcs[{number}]") for number, arc in enumerate(aggregator.arcs))
        aggregators.append(Aggregator(aggregator.name, _parse_over(aggregator.over, f"{field}.over"), tuple(arcs)))
    pod_arcs = []
    for place, arc in enumerate(wire.arcs):
        field = f"{_FIELD}.arcs[{place}]"
        pod_arcs.append(PodArc(_parse_from(arc.tail, f"{field}.from"), _parse_arc(arc, field)))
    spec = NetworkSpec(tuple(aggregators), tuple(pod_arcs))
    check_network(spec, _FIELD)
    return spec


def _parse_over(wire: _Over, field: str) -> Over:
    if wire.node_label == "":
        raise PolicyError(f"{field}.nodeLabel", f'"{wire.node_label}" is not a label key')
    nodes, pods = wire.node_selector, wire.pod_selector
    return Over(
        wire.node_label or "",
        None if nodes is None else parse_selector(nodes, f"{field}.nodeSelector"),
        None if pods is None else parse_selector(pods, f"{field}.podSelector"),
    )


def _parse_from(wire: _From, field: str) -> PodEnd:
    match wire:
        case _From(pod_selector=WireLabelSelector() as selector, running_pods=None):
            return PodEnd(parse_selector(selector, f"{field}.podSelector"))
        case _From(pod_selector=None, running_pods=WireLabelSelector() as selector):
            return PodEnd(parse_selector(selector, f"{field}.runningPods"), runs=True)
    raise PolicyError(field, "needs exactly one of podSelector and runningPods")


def _parse_arc(wire: _Arc, field: str) -> NetworkArc:
    if not _GAIN.fullmatch(str(wire.gain)):
        raise PolicyError(f"{field}.gain", f'"{wire.gain}" is neither a whole number nor a fraction such as 1/2')
    gain, cost = Fraction(wire.gain).as_integer_ratio(), _parse_cost(wire.cost, f"{field}.cost")
    return NetworkArc(wire.to, cost, wire.minimum, wire.maximum, gain, wire.whole_or_none)


def _parse_cost(wire: object, field: str) -> ArcCost:
    """A number, segments, or a part of what nodes cost."""
    if isinstance(wire, list):
        segments = [_converted(each, _Segment, f"{field}[{number}]") for number, each in enumerate(wire)]
        return ArcCost(tuple(Segment(each.unit_cost, each.up_to) for each in segments))
    if isinstance(wire, Mapping):
        part = _converted(wire, _PartOfCost, field)
        return ArcCost(part=part.of, weight=part.weight)
    return ArcCost((Segment(_converted({"each": wire}, _Segment, field).unit_cost),))


def _converted(wire: object, kind: type[_T], field: str) -> _T:
    try:
        return msgspec.convert(wire, kind)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        raise PolicyError(f"{field}{path.rstrip('`')}".removesuffix(".each"), problem) from error
