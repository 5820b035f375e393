"""The flow of a plan in the network that a policy, or its cost model, draws: arc by arc, as the plan was made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

import msgspec

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.amount_text import counted
from flowcore.model.networks import UNSCHEDULED, NetworkSpec, PodEnd
from flowcore.model.policies import Policy
from flowcore.model.selectors import LabelSelector
from flowcore.planning.drawn_networks.compile_networks import ways_of
from flowcore.planning.problem.result import Placement, Unplaced
from flowcore.questions.scenario.flow.flow_arcs import FlowArc, together
from flowcore.questions.scenario.flow.flow_rows import FlowRow
from flowcore.questions.scenario.flow.rule_rows import RuleFlow


def drawn_flow(
    policy: Policy,
    after: Snapshot,
    placed: Sequence[Placement],
    left: Sequence[Unplaced],
    refused: str,
    *,
    nodes: bool,
) -> tuple[list[FlowArc], list[str]]:
    """The arcs of a policy's network with the flow of its pods, and notes about what they do not say.

    Args:
        after: the cluster with the plan.
        placed, left: pods of the policy that wait, by what the plan does with them.
        refused: why the network was not solved, a sentence; "": it was, or there was nothing to solve.
        nodes: whether each node has an arc of its own.
    """
    notes = list[str]()
    if ways := [] if policy.network is None else ways_of(policy, after):
        flow = RuleFlow(policy, ways, after, placed, [*(each.pod for each in placed), *(each.pod for each in left)])
        rows, lost = list(flow.rows()), flow.lost
        notes += [refused] if refused else []
        if flow.has_model:
            notes.append("the cost model says what pods pay beside an arc's own cost: such arcs have no price here")
    else:
        rows, lost = [], 0
        notes.append(refused or f"no pod of policy {policy.name} waits, so its network was not solved")
    if lost:
        has, is_on = ("has", "is") if lost == 1 else ("have", "are")
        pods = f"{counted(lost, 'pod')} that {has} a node {is_on} on no arc"
        notes.append(f"{pods}: no way leads there, or none has room")
    ends = _ends_of_waiting(policy.network)
    waiting = _prices_by_start(ends, left)
    drawn_ends = {PodEnd(selector).text: cost for selector, cost in sorted(ends, key=itemgetter(1), reverse=True)}
    rows += [
        FlowRow("arcs", start, UNSCHEDULED, True, False, len(waiting.get(start, ())), 0, None, "1", cost)
        for start, cost in drawn_ends.items()
    ]
    # Pods may wait, whether that is drawn or not.
    drawn = (row for row in rows if row.flow or row.name or row.head != UNSCHEDULED)
    arcs = [_priced(arc, waiting) for arc in _folded(drawn, nodes=nodes)]
    known = {arc.tail for arc in arcs if _waits(arc)}
    arcs += [
        _priced(FlowArc(start, UNSCHEDULED, len(prices), from_pods=True), waiting)
        for start, prices in waiting.items()
        if start not in known
    ]
    units = sum(arc.flow for arc in arcs if arc.head == UNSCHEDULED)
    if units != len(left) and any(arc.gain != "1" for arc in arcs):
        go, wait = "goes" if units == 1 else "go", "waits" if len(left) == 1 else "wait"
        waiting_units = f"{counted(units, 'unit')} of flow {go} to Unscheduled, and {counted(len(left), 'pod')} {wait}"
        notes.append(f"{waiting_units}: with a gain a unit places more than one pod, or less")
    return arcs, notes


def _ends_of_waiting(spec: NetworkSpec | None) -> list[tuple[LabelSelector, int]]:
    """The pods that have an arc to Unscheduled, and what it costs."""
    arcs = () if spec is None else (each for each in spec.arcs if each.arc.head == UNSCHEDULED and not each.tail.runs)
    return [(each.tail.selector, each.arc.cost.segments[0].cost) for each in arcs]


def _prices_by_start(ends: Sequence[tuple[LabelSelector, int]], left: Iterable[Unplaced]) -> dict[str, list[int]]:
    """What pods pay that wait, by the start of the arc that they take: the cheapest that is drawn for them."""
    prices: dict[str, list[int]] = {}
    for unplaced in left:
        own = [end for end in ends if end[0].matches(unplaced.pod.signature.labels)]
        start = PodEnd(min(own, key=itemgetter(1))[0] if own else LabelSelector()).text
        prices.setdefault(start, []).append(unplaced.price)
    return prices


def _waits(arc: FlowArc) -> bool:
    return arc.from_pods and arc.head == UNSCHEDULED


def _priced(arc: FlowArc, waiting: Mapping[str, Sequence[int]]) -> FlowArc:
    """An arc of pods to Unscheduled with what those pay that wait; any other as it is."""
    prices = waiting.get(arc.tail) if _waits(arc) else None
    return msgspec.structs.replace(arc, price=min(prices), highest_price=max(prices)) if prices else arc


def _folded(rows: Iterable[FlowRow], *, nodes: bool) -> list[FlowArc]:
    """The rows as arcs; of those from one point to nodes one, unless each node is asked for."""
    folded: dict[tuple[str, str, str, str], list[FlowArc]] = {}
    for row in rows:
        end = "" if row.to_nodes and not nodes else row.head
        folded.setdefault((row.name, row.tail, end, row.gain), []).append(row.arc)
    return [
        together(arcs, arcs[0].tail, arcs[0].head if len(arcs) == 1 else counted(len(arcs), "node"))
        for arcs in folded.values()
    ]
