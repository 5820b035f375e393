"""``spec.network`` of a policy: from JSON to a NetworkSpec, with all that can be known before a round."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, Final, TypeVar

import msgspec

from flowcore.api.selectors import WireLabelSelector, parse_selector
from flowcore.model.errors import PolicyError
from flowcore.model.networks import (
    NODES,
    UNSCHEDULED,
    Aggregator,
    ArcCost,
    CostPart,
    NetworkArc,
    NetworkSpec,
    Over,
    PodArc,
    PodEnd,
    Segment,
)
from flowcore.model.selectors import is_dns_subdomain, is_label_key

#: A network has no more of each; names are declared, and values of a label do not count.
_MOST_AGGREGATORS, _MOST_ARCS, _MOST_SEGMENTS = 100, 100, 32
#: No unit costs more on one arc; more units on one arc are a mistake; sums stay far from overflow.
_MOST_COST, _MOST_UNITS = 10**9, 10**6
#: Numerator and denominator of a gain, and of all gains of a way together.
_MOST_GAIN = 10**6

_FlowLimit = Annotated[int, msgspec.Meta(ge=0, le=_MOST_UNITS)]


class _Segment(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    unit_cost: Annotated[int, msgspec.Meta(ge=0, le=_MOST_COST)] = msgspec.field(name="each")
    up_to: Annotated[int, msgspec.Meta(ge=1, le=_MOST_UNITS)] | None = None


class _PartOfCost(msgspec.Struct, forbid_unknown_fields=True):
    of: CostPart
    weight: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 1


class _Arc(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    to: str
    cost: Any = 0
    minimum: _FlowLimit = 0
    maximum: _FlowLimit | None = None
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
    if len(wire.aggregators) > _MOST_AGGREGATORS:
        raise PolicyError(f"{_FIELD}.aggregators", f"has more than {_MOST_AGGREGATORS} entries")
    names = _names(wire.aggregators)
    aggregators = tuple(
        Aggregator(
            each.name,
            _parse_over(each.over, f"{_FIELD}.aggregators[{place}].over"),
            tuple(_parse_arcs(each.arcs, names, f"{_FIELD}.aggregators[{place}]")),
        )
        for place, each in enumerate(wire.aggregators)
    )
    tails = [_parse_from(each.tail, f"{_FIELD}.arcs[{place}].from") for place, each in enumerate(wire.arcs)]
    arcs = tuple(map(PodArc, tails, _parse_arcs(wire.arcs, names, _FIELD)))
    if not any(not each.tail.runs for each in arcs) and not any(each.over.pods for each in aggregators):
        raise PolicyError(f"{_FIELD}.arcs", "no arc begins at waiting pods, so none could be placed")
    for place, pod_arc in enumerate(arcs):
        _check_pod_arc(pod_arc, f"{_FIELD}.arcs[{place}]")
    _check_ways(aggregators, arcs)
    return NetworkSpec(aggregators, arcs)


def _names(aggregators: Sequence[_Aggregator]) -> frozenset[str]:
    known = set[str]()
    for place, aggregator in enumerate(aggregators):
        field = f"{_FIELD}.aggregators[{place}]"
        if aggregator.name in (NODES, UNSCHEDULED) or not is_label_key(aggregator.name) or "/" in aggregator.name:
            raise PolicyError(f"{field}.name", f'"{aggregator.name}" is no name: letters, digits, "-", "_" and "."')
        if aggregator.name in known:
            raise PolicyError(f"{field}.name", f'"{aggregator.name}" is the name of another aggregator')
        if not aggregator.arcs:
            raise PolicyError(f"{field}.arcs", "an aggregator has at least one arc that leaves it")
        known.add(aggregator.name)
    return frozenset(known)


def _parse_over(wire: _Over, field: str) -> Over:
    given = [each for each in (wire.node_label, wire.node_selector, wire.pod_selector) if each is not None]
    if len(given) > 1:
        raise PolicyError(field, "has more than one of nodeLabel, nodeSelector and podSelector")
    if wire.node_label is not None and not is_label_key(wire.node_label):
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


def _parse_arcs(wires: Sequence[_Arc], names: frozenset[str], field: str) -> Iterator[NetworkArc]:
    if len(wires) > _MOST_ARCS:
        raise PolicyError(f"{field}.arcs", f"has more than {_MOST_ARCS} entries")
    for place, wire in enumerate(wires):
        yield _parse_arc(wire, names, f"{field}.arcs[{place}]")


def _parse_arc(wire: _Arc, names: frozenset[str], field: str) -> NetworkArc:
    is_known = wire.to in (NODES, UNSCHEDULED) or wire.to in names
    if not is_known and (wire.to.title() in (NODES, UNSCHEDULED) or not is_dns_subdomain(wire.to)):
        problem = f'"{wire.to}" is neither Nodes, Unscheduled, an aggregator of this network nor the name of a node'
        raise PolicyError(f"{field}.to", problem)
    if wire.maximum is not None and wire.minimum > wire.maximum:
        raise PolicyError(f"{field}.minimum", f"{wire.minimum} is above the maximum of {wire.maximum}")
    if wire.whole_or_none and not wire.minimum:
        raise PolicyError(f"{field}.wholeOrNone", "needs a minimum: how many units are whole")
    cost = _parse_cost(wire.cost, f"{field}.cost")
    if cost.part is not None and (wire.to in names or wire.to == UNSCHEDULED):
        raise PolicyError(f"{field}.cost.of", f"{cost.part} is a cost of nodes; this arc leads to {wire.to}")
    return NetworkArc(
        wire.to, cost, wire.minimum, wire.maximum, _parse_gain(wire.gain, field).as_integer_ratio(), wire.whole_or_none
    )


def _parse_cost(wire: object, field: str) -> ArcCost:
    """A number, rising segments, or a part of what nodes cost."""
    if isinstance(wire, list):
        if not 0 < len(wire) <= _MOST_SEGMENTS:
            raise PolicyError(field, f"has {len(wire)} segments; it may have 1 to {_MOST_SEGMENTS}")
        return ArcCost(
            _rising([_converted(each, _Segment, f"{field}[{number}]") for number, each in enumerate(wire)], field)
        )
    if isinstance(wire, Mapping):
        part = _converted(wire, _PartOfCost, field)
        return ArcCost(part=part.of, weight=part.weight)
    return ArcCost((Segment(_converted({"each": wire}, _Segment, field).unit_cost),))


def _rising(wires: Sequence[_Segment], field: str) -> tuple[Segment, ...]:
    for number, (wire, after) in enumerate(zip(wires, [*wires[1:], None], strict=True)):
        path = f"{field}[{number}]"
        if (wire.up_to is None) != (after is None):
            problem = "the last segment has no end" if after is None else "only the last segment has no end"
            raise PolicyError(f"{path}.upTo", problem)
        if after is not None and after.unit_cost < wire.unit_cost:
            raise PolicyError(
                f"{field}[{number + 1}].each", f"{after.unit_cost} is below the {wire.unit_cost} of the segment before"
            )
        if after is not None and after.up_to is not None and wire.up_to is not None and after.up_to <= wire.up_to:
            raise PolicyError(f"{field}[{number + 1}].upTo", f"{after.up_to} is not above the {wire.up_to} before it")
    return tuple(Segment(wire.unit_cost, wire.up_to) for wire in wires)


def _converted(wire: object, kind: type[_T], field: str) -> _T:
    try:
        return msgspec.convert(wire, kind)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        raise PolicyError(f"{field}{path.rstrip('`')}".removesuffix(".each"), problem) from error


def _parse_gain(wire: str | int, field: str) -> Fraction:
    if not _GAIN.fullmatch(str(wire)):
        raise PolicyError(f"{field}.gain", f'"{wire}" is neither a whole number nor a fraction such as 1/2')
    gain = Fraction(wire)
    if gain <= 0 or max(gain.numerator, gain.denominator) > _MOST_GAIN:
        raise PolicyError(f"{field}.gain", f"{wire} is not above 0, of numbers up to {_MOST_GAIN}")
    return gain


def _check_pod_arc(pod_arc: PodArc, field: str) -> None:
    """Pods may always wait. Units of pods that have a node cost nothing, and are there whatever an arc wants."""
    arc = pod_arc.arc
    is_plain = not arc.minimum and arc.maximum is None and arc.factor == 1
    if arc.head == UNSCHEDULED and not (is_plain and len(arc.cost.segments) == 1):
        raise PolicyError(field, "any number of pods may wait: an arc to Unscheduled has one cost, and no limits")
    if not pod_arc.tail.runs:
        return
    if arc.cost != ArcCost():
        raise PolicyError(f"{field}.cost", "units of pods that have a node cost nothing: leave it out")
    if not is_plain:
        problem = "units of pods that have a node go first: the arc has neither minimum nor maximum nor gain"
        raise PolicyError(field, problem)


def _check_ways(aggregators: Sequence[Aggregator], pod_arcs: Sequence[PodArc]) -> None:
    """No unit comes back to where it was, no way makes too much of it, and where something must enter something leads.

    Raises:
        PolicyError: there is a cycle, or gains multiply.
    """
    arcs = {each.name: each.arcs for each in aggregators}
    #: Of each aggregator the largest product of gains behind it; None: it is on the way that is looked at.
    most: dict[str, Fraction | None] = {}

    def visit(name: str, way: tuple[str, ...]) -> Fraction:
        if name in most:
            known = most[name]
            if known is None:
                cycle = " -> ".join((*way[way.index(name) :], name))
                problem = f"form a cycle, in which flow could turn without a pod: {cycle}"
                raise PolicyError(f"{_FIELD}.aggregators", problem)
            return known
        most[name] = None
        behind = Fraction(1)
        for arc in arcs[name]:
            after = visit(arc.head, (*way, name)) if arc.head in arcs else Fraction(1)
            behind = max(behind, max(arc.factor, Fraction(1)) * after)
        if behind > _MOST_GAIN:
            problem = f"gains behind {name} make more than {_MOST_GAIN} units of one"
            raise PolicyError(f"{_FIELD}.aggregators", problem)
        most[name] = behind
        return behind

    for name in arcs:
        visit(name, ())
    for place, pod_arc in enumerate(pod_arcs):
        behind = visit(pod_arc.arc.head, ()) if pod_arc.arc.head in arcs else Fraction(1)
        if pod_arc.arc.factor * behind > _MOST_GAIN:
            problem = f"gains make more than {_MOST_GAIN} units of one"
            raise PolicyError(f"{_FIELD}.arcs[{place}].gain", problem)
    led_to = {each.arc.head for each in pod_arcs} | {arc.head for each in aggregators for arc in each.arcs}
    for place, aggregator in enumerate(aggregators):
        if aggregator.over.pods is None and aggregator.name not in led_to:
            problem = f"no arc leads to {aggregator.name}"
            raise PolicyError(f"{_FIELD}.aggregators[{place}].name", problem)
