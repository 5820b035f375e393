"""Networks that were solved as a whole: the flow that the solver found, without the points that the drawing adds."""

from __future__ import annotations

from collections.abc import Iterable

from flowcore.costs.network_model import Arc, End, PlacedPods, Pods
from flowcore.model.networks import NetworkSpec
from flowcore.model.nodes import Node
from flowcore.planning.problem.result import SolvedNetwork
from flowcore.questions.scenario.flow.flow_rows import FlowRow, end_name, pods_name

#: How points begin that the drawing adds for an arc of pods, and what those have that it adds within an arc.
_OF_PODS, _WITHIN = "arcs[", " from "


def solved_rows(spec: NetworkSpec | None, solved: SolvedNetwork) -> Iterable[FlowRow]:
    """What the solver found, without the points that the drawing adds."""
    rows: dict[tuple[str, str, str], FlowRow] = {}
    within: dict[str, FlowRow] = {}
    joints = list[tuple[str, Arc]]()
    #: What a part of the costs of nodes adds for the pods that come to a point. Where none comes it is unknown.
    parts: dict[str, list[int]] = {}
    parted, reached = _arcs_with_parts(spec), _of_waiting(solved)
    for arc, units in zip(solved.arcs, solved.units.tolist(), strict=True):
        tail, head = (end if spec is not None and isinstance(end, str) else "" for end in (arc.tail, arc.head))
        if _WITHIN in tail:
            joints.append((tail, arc))
            continue
        if head.startswith(_OF_PODS) and _WITHIN not in head:  # the arc of the pods goes on from there
            if isinstance(arc.tail, Pods):
                parts.setdefault(head, []).append(int(arc.cost))
            continue
        from_pods = not isinstance(arc.tail, str) or tail.startswith(_OF_PODS)
        start, end = _start(spec or NetworkSpec(), arc), end_name(arc.head)
        row = rows.setdefault(
            (arc.name, start, end), FlowRow(arc.name, start, end, from_pods, isinstance(arc.head, Node))
        )
        row.add(arc, units)
        if tail and (tail.startswith(_OF_PODS) or (arc.name in parted and tail not in reached)):
            row.parts = tail
        if _WITHIN in head:
            within[head] = row
    for tail, arc in joints:
        # What it says of its units together; its segments say what they cost, and end where it begins.
        row = within[tail]
        row.head, row.to_nodes, row.gain = end_name(arc.head), isinstance(arc.head, Node), str(arc.gain)
        row.minimum, row.whole_or_none = int(arc.minimum), arc.whole_or_none
    for row in rows.values():
        if row.price is not None and row.parts:
            pays = parts.get(row.parts)
            row.price, row.spread = (row.price + min(pays), max(pays) - min(pays)) if pays else (None, 0)
    return rows.values()


def _arcs_with_parts(spec: NetworkSpec | None) -> set[str]:
    """Names of arcs that leave aggregators, and whose units pay a part of what nodes cost."""
    of_points = () if spec is None else spec.aggregators
    return {f"{each.name}.arcs[{n}]" for each in of_points for n, arc in enumerate(each.arcs) if arc.cost.part}


def _of_waiting(solved: SolvedNetwork) -> set[End]:
    """The points that waiting pods come to."""
    onward: dict[End, list[End]] = {}
    for arc in solved.arcs:
        if isinstance(arc.tail, str):
            onward.setdefault(arc.tail, []).append(arc.head)
    ends = [arc.head for arc in solved.arcs if isinstance(arc.tail, Pods)]
    reached = set[End]()
    while ends:
        end = ends.pop()
        if end not in reached:
            reached.add(end)
            ends += onward.get(end, [])
    return reached


def _start(spec: NetworkSpec, arc: Arc) -> str:
    """Where an arc begins, for people."""
    number = arc.tail.partition(" to ")[0] if isinstance(arc.tail, str) else arc.name
    for place, pod_arc in enumerate(spec.arcs):
        if number == f"arcs[{place}]":
            return pods_name(pod_arc.tail.selector.text, runs=pod_arc.tail.runs)
    if isinstance(arc.tail, str):
        return arc.tail
    for aggregator in spec.aggregators:
        if aggregator.over.pods is not None and arc.head == aggregator.name:
            return pods_name(aggregator.over.pods.text)
    if spec.arcs or not isinstance(arc.tail, Pods | PlacedPods):
        return pods_name("")
    return pods_name(",".join(f"{key}={value}" for key, value in sorted(arc.tail.labels.items())))
