"""What a network contradicts itself by, before a round: whether a policy draws it in JSON or its cost model does."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import msgspec

from flowcore.model.errors import PolicyError
from flowcore.model.networks import (
    NODES,
    UNSCHEDULED,
    Aggregator,
    ArcCost,
    NetworkArc,
    NetworkSpec,
    PodArc,
)
from flowcore.model.selectors import LabelSelector, is_dns_subdomain, is_label_key

#: A network has no more of each; names are declared, and values of a label do not count.
_MOST_AGGREGATORS, _MOST_ARCS, _MOST_SEGMENTS = 100, 100, 32
#: Numerator and denominator of a gain, and of all gains of a way together.
_MOST_GAIN = 10**6


def checked_network(value: object, field: str) -> NetworkSpec:
    """A value that code of others says is a network.

    Args:
        field: before the names of fields in errors.

    Raises:
        PolicyError: it is none, or contradicts itself; the error names the field.
    """
    if not isinstance(value, NetworkSpec):
        raise PolicyError(field, f"is {type(value).__name__} in place of NetworkSpec")
    try:
        spec = msgspec.convert(msgspec.to_builtins(value), NetworkSpec)
    except (msgspec.ValidationError, TypeError) as error:
        problem, _, path = str(error).partition(" - at `$")
        raise PolicyError(f"{field}{path.rstrip('`')}", problem) from error
    check_network(spec, field)
    return spec


def check_network(spec: NetworkSpec, field: str) -> None:
    """Checks all that can be known before a round.

    Args:
        field: before the names of fields in errors.

    Raises:
        PolicyError: the network contradicts itself; the error names the field.
    """
    aggregators, arcs = spec.aggregators, spec.arcs
    if len(aggregators) > _MOST_AGGREGATORS:
        raise PolicyError(f"{field}.aggregators", f"has more than {_MOST_AGGREGATORS} entries")
    names = _names(aggregators, field)
    for place, aggregator in enumerate(aggregators):
        path = f"{field}.aggregators[{place}]"
        over = aggregator.over
        if sum((bool(over.node_label), over.nodes is not None, over.pods is not None)) > 1:
            raise PolicyError(f"{path}.over", "has more than one of nodeLabel, nodeSelector and podSelector")
        if over.node_label and not is_label_key(over.node_label):
            raise PolicyError(f"{path}.over.nodeLabel", f'"{over.node_label}" is not a label key')
        _check_selector(over.nodes, f"{path}.over.nodeSelector")
        _check_selector(over.pods, f"{path}.over.podSelector")
        _check_arcs(aggregator.arcs, names, path)
    _check_arcs([each.arc for each in arcs], names, field)
    if not any(not each.tail.runs for each in arcs) and not any(each.over.pods for each in aggregators):
        raise PolicyError(f"{field}.arcs", "no arc begins at waiting pods, so none could be placed")
    for place, pod_arc in enumerate(arcs):
        _check_selector(pod_arc.tail.selector, f"{field}.arcs[{place}].from")
        _check_pod_arc(pod_arc, f"{field}.arcs[{place}]")
    _check_ways(aggregators, arcs, field)


def _names(aggregators: Sequence[Aggregator], field: str) -> frozenset[str]:
    known = set[str]()
    for place, aggregator in enumerate(aggregators):
        path = f"{field}.aggregators[{place}]"
        if aggregator.name in (NODES, UNSCHEDULED) or not is_label_key(aggregator.name) or "/" in aggregator.name:
            raise PolicyError(f"{path}.name", f'"{aggregator.name}" is no name: letters, digits, "-", "_" and "."')
        if aggregator.name in known:
            raise PolicyError(f"{path}.name", f'"{aggregator.name}" is the name of another aggregator')
        if not aggregator.arcs:
            raise PolicyError(f"{path}.arcs", "an aggregator has at least one arc that leaves it")
        known.add(aggregator.name)
    return frozenset(known)


def _check_selector(selector: LabelSelector | None, field: str) -> None:
    if selector is not None and not selector.is_valid:
        raise PolicyError(field, "it is no selector of labels")


def _check_arcs(arcs: Sequence[NetworkArc], names: frozenset[str], field: str) -> None:
    if len(arcs) > _MOST_ARCS:
        raise PolicyError(f"{field}.arcs", f"has more than {_MOST_ARCS} entries")
    for place, arc in enumerate(arcs):
        _check_arc(arc, names, f"{field}.arcs[{place}]")


def _check_arc(arc: NetworkArc, names: frozenset[str], field: str) -> None:
    is_known = arc.head in (NODES, UNSCHEDULED) or arc.head in names
    if not is_known and (arc.head.title() in (NODES, UNSCHEDULED) or not is_dns_subdomain(arc.head)):
        problem = f'"{arc.head}" is neither Nodes, Unscheduled, an aggregator of this network nor the name of a node'
        raise PolicyError(f"{field}.to", problem)
    if arc.maximum is not None and arc.minimum > arc.maximum:
        raise PolicyError(f"{field}.minimum", f"{arc.minimum} is above the maximum of {arc.maximum}")
    if arc.whole_or_none and not arc.minimum:
        raise PolicyError(f"{field}.wholeOrNone", "needs a minimum: how many units are whole")
    _check_rising(arc.cost, f"{field}.cost")
    if arc.cost.part is not None and (arc.head in names or arc.head == UNSCHEDULED):
        problem = f"{arc.cost.part} is a cost of nodes; this arc leads to {arc.head}"
        raise PolicyError(f"{field}.cost.of", problem)
    numerator, denominator = arc.gain
    if not 0 < numerator <= _MOST_GAIN or not 0 < denominator <= _MOST_GAIN:
        gain = f"{numerator}/{denominator}" if denominator != 1 else f"{numerator}"
        raise PolicyError(f"{field}.gain", f"{gain} is not above 0, of numbers up to {_MOST_GAIN}")


def _check_rising(cost: ArcCost, field: str) -> None:
    segments = cost.segments
    if not 0 < len(segments) <= _MOST_SEGMENTS:
        raise PolicyError(field, f"has {len(segments)} segments; it may have 1 to {_MOST_SEGMENTS}")
    for number, (segment, after) in enumerate(zip(segments, [*segments[1:], None], strict=True)):
        if (segment.up_to is None) != (after is None):
            problem = "the last segment has no end" if after is None else "only the last segment has no end"
            raise PolicyError(f"{field}[{number}].upTo", problem)
        if after is not None and after.cost < segment.cost:
            problem = f"{after.cost} is below the {segment.cost} of the segment before"
            raise PolicyError(f"{field}[{number + 1}].each", problem)
        if after is not None and after.up_to is not None and segment.up_to is not None and after.up_to <= segment.up_to:
            problem = f"{after.up_to} is not above the {segment.up_to} before it"
            raise PolicyError(f"{field}[{number + 1}].upTo", problem)


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


def _check_ways(aggregators: Sequence[Aggregator], pod_arcs: Sequence[PodArc], field: str) -> None:
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
                raise PolicyError(f"{field}.aggregators", problem)
            return known
        most[name] = None
        behind = Fraction(1)
        for arc in arcs[name]:
            after = visit(arc.head, (*way, name)) if arc.head in arcs else Fraction(1)
            behind = max(behind, max(arc.factor, Fraction(1)) * after)
        if behind > _MOST_GAIN:
            problem = f"gains behind {name} make more than {_MOST_GAIN} units of one"
            raise PolicyError(f"{field}.aggregators", problem)
        most[name] = behind
        return behind

    for name in arcs:
        visit(name, ())
    for place, pod_arc in enumerate(pod_arcs):
        behind = visit(pod_arc.arc.head, ()) if pod_arc.arc.head in arcs else Fraction(1)
        if pod_arc.arc.factor * behind > _MOST_GAIN:
            problem = f"gains make more than {_MOST_GAIN} units of one"
            raise PolicyError(f"{field}.arcs[{place}].gain", problem)
    led_to = {each.arc.head for each in pod_arcs} | {arc.head for each in aggregators for arc in each.arcs}
    for place, aggregator in enumerate(aggregators):
        if aggregator.over.pods is None and aggregator.name not in led_to:
            problem = f"no arc leads to {aggregator.name}"
            raise PolicyError(f"{field}.aggregators[{place}].name", problem)
