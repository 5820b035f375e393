"""What a policy without a drawing amounts to: workloads, zones, nodes that are alike, and limits of constraints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.amount_text import counted, short_amount
from flowcore.model.constraint_limits import limits_of
from flowcore.model.constraints import Global
from flowcore.model.inter_pod_constraints import HOSTNAME, MaxPerDomain
from flowcore.model.networks import UNSCHEDULED
from flowcore.model.nodes import Node
from flowcore.model.policies import Policy
from flowcore.model.resources import CPU, MEMORY, is_extended
from flowcore.model.selectors import NodeSelectorTerm, value_of
from flowcore.model.volumes import ZONE
from flowcore.planning.problem.result import Placement, Unplaced
from flowcore.questions.scenario.flow.flow_arcs import FlowArc, together
from flowcore.rules.topology.domain_limits import limit_counter

_GI: Final = 2**30


def plain_flow(
    policy: Policy, after: Snapshot, placed: Iterable[Placement], left: Iterable[Unplaced], classes: dict[str, str]
) -> tuple[list[FlowArc], list[str]]:
    """Arcs where a policy draws none, and notes about them.

    Args:
        after: the cluster with the plan.
        placed, left: pods of the policy that wait, by what the plan does with them.
        classes: the start of arcs of each pod, by key.
    """
    arcs = _arcs(after.table.nodes, placed, left, classes, _domain_key(policy))
    limits = list(_limits(policy, after))
    note = "rows that begin at a constraint count its pods beside the other rows, those that run too"
    return [*arcs, *limits], [note] if limits else []


def _domain_key(policy: Policy) -> str:
    """The label that the policy's constraints group nodes by; zones where they group them by none."""
    keys = (each.topology_key for each in policy.constraints if not isinstance(each, Global))
    return next((key for key in keys if key != HOSTNAME), ZONE)


def _arcs(
    nodes: Sequence[Node], placed: Iterable[Placement], left: Iterable[Unplaced], classes: dict[str, str], key: str
) -> list[FlowArc]:
    """Arcs from workloads to zones, from zones to nodes that are alike, to Unscheduled.

    Args:
        key: the label that takes the place of zones.
    """
    values = {node.name: value_of(node.labels, key) for node in nodes}
    without = "cluster" if set(values.values()) <= {None} else f"no {_short(key)}"
    zone_of = {name: without if value is None else f"{_short(key)} {value}" for name, value in values.items()}
    shape_of = {node.name: _shape(node) for node in nodes}
    alike = Counter((zone_of[node.name], shape_of[node.name]) for node in nodes)
    to_zones: dict[tuple[str, str], list[int]] = {}
    to_nodes: dict[tuple[str, str], list[int]] = {group: [] for group in sorted(alike)}
    waits: dict[str, list[int]] = {}
    for placement in placed:
        zone = zone_of[placement.node]
        to_zones.setdefault((classes[placement.pod.key], zone), []).append(placement.price)
        to_nodes[zone, shape_of[placement.node]].append(placement.price)
    for unplaced in left:
        waits.setdefault(classes[unplaced.pod.key], []).append(unplaced.price)
    return [
        *(_mean_arc(*ends, prices, from_pods=True) for ends, prices in sorted(to_zones.items(), key=_most_first)),
        *(
            _mean_arc(zone, f"{counted(alike[zone, shape], 'node')} of {shape}", prices, alike[zone, shape])
            for (zone, shape), prices in to_nodes.items()
        ),
        *(
            _mean_arc(start, UNSCHEDULED, prices, from_pods=True)
            for start, prices in sorted(waits.items(), key=_most_first)
        ),
    ]


def _most_first(item: tuple[object, list[int]]) -> tuple[int, str]:
    return -len(item[1]), str(item[0])


def _mean_arc(tail: str, head: str, prices: list[int], arcs: int = 0, *, from_pods: bool = False) -> FlowArc:
    """An arc with a unit for each price.

    Args:
        arcs: nodes that it ends at; 0: it does not.
    """
    price = round(sum(prices) / len(prices)) if prices else None
    return FlowArc(
        tail,
        head,
        len(prices),
        price=price,
        highest_price=price,
        arcs=max(1, arcs),
        from_pods=from_pods,
        to_nodes=arcs > 0,
    )


def _short(key: str) -> str:
    """The part of a label's key that people say: "zone"."""
    return key.rpartition("/")[2]


def _limits(policy: Policy, after: Snapshot) -> Iterator[FlowArc]:
    """The limits of a policy's constraints: arcs of the pods that they count, those that run too, to the domains."""
    table = after.table
    for constraint in policy.constraints:
        for key, selectors, most in limits_of(constraint):
            only = constraint.nodes.requirements if isinstance(constraint, Global) else ()
            terms = (NodeSelectorTerm(only),) if only else ()
            limit = MaxPerDomain(constraint.name, key, selectors, policy.selects.namespaces, most, terms)
            counter = limit_counter(limit, after.pod_index, table)
            domains, counts = counter.domains, counter.initial
            codes, firsts = np.unique(domains.codes[domains.labelled], return_index=True)
            labelled = np.nonzero(domains.labelled)[0]
            start = f"constraint {constraint.name}: pods {' or '.join(each.text for each in selectors)}".rstrip()
            arcs = []
            for code, node in zip(codes.tolist(), labelled[firsts].tolist(), strict=True):
                flow = int(counts[code])
                state = "" if flow < most else "full" if flow == most else "over"
                end = f"{_short(key)} {value_of(table.nodes[node].labels, key)}" if key else "cluster"
                arcs.append(
                    FlowArc(
                        start,
                        end,
                        flow,
                        maximum=most,
                        state=state,
                        full=int(flow >= most),
                        from_pods=True,
                        to_nodes=key == HOSTNAME,
                    )
                )
            if key == HOSTNAME and arcs:
                arcs = [together(arcs, start, counted(len(arcs), "node"))]
            yield from arcs


def _shape(node: Node) -> str:
    """What nodes that are alike have in common, such as "16 cpu, 64Gi"; memory in whole Gi."""
    offers = dict(node.allocatable)
    memory = offers.get(MEMORY, 0)
    words = [f"{short_amount(CPU, offers.get(CPU, 0))} cpu", short_amount(MEMORY, round(memory / _GI) * _GI or memory)]
    words += [f"{amount} {name}" for name, amount in sorted(offers.items()) if is_extended(name) and amount]
    return ", ".join((*words, *sorted({taint.text for taint in node.taints}), *(["cordoned"] * node.unschedulable)))
