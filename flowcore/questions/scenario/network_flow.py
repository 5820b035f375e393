"""The plan as flow in the networks of its policies: what enters each arc, at what price, within which limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs.network_model import network_models
from flowcore.model.amount_text import counted, short_amount
from flowcore.model.constraint_limits import limits_of
from flowcore.model.constraints import Global
from flowcore.model.errors import ModelError
from flowcore.model.inter_pod_constraints import HOSTNAME, MaxPerDomain
from flowcore.model.networks import UNSCHEDULED
from flowcore.model.nodes import Node
from flowcore.model.policies import BUILT_IN, OBSERVED, Policy
from flowcore.model.resources import CPU, MEMORY, is_extended
from flowcore.model.selectors import NodeSelectorTerm, value_of
from flowcore.model.volumes import ZONE
from flowcore.model.workloads import workload_of
from flowcore.planning.problem.result import Placement, Unplaced
from flowcore.questions.scenario.context import AnswerContext, UnknownName
from flowcore.questions.scenario.drawn_flow import drawn_flow
from flowcore.questions.scenario.flow_arcs import FlowArc, summed, together
from flowcore.questions.scenario.near_names import did_you_mean
from flowcore.questions.scenario.plan import ScenarioPlan, plan_scenario
from flowcore.questions.scenario.reading.moment import moment_text
from flowcore.questions.scenario.redaction import Redaction
from flowcore.questions.scenario.scenario import Scenario
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.domain_limits import domains_of_limit, limit_match

#: Workloads that have arcs of their own; the others are one start of arcs.
MAX_WORKLOADS: Final = 20
#: Names that an error lists.
_MAX_NAMES: Final = 20
_GI: Final = 2**30


class NetworkQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Asks for the flow.

    Attributes:
        policy: whose network; "": of each policy whose pods are planned.
        nodes: whether each node has arcs of its own, in networks that policies draw.
        most: rows of each policy at most: where it has more arcs, some rows stand for several; 0: each arc is one.
    """

    policy: str = ""
    nodes: bool = False
    most: int = 0


class PolicyFlow(msgspec.Struct, frozen=True, rename="camel"):
    """The network of one policy, and its flow.

    Attributes:
        policy: its name.
        drawn: whether the policy, or its cost model, draws the network. Then running pods are flow too. Else arcs lead
            from workloads to zones, and from these to nodes that are alike, and the flow is the pods of the plan. Arcs
            that begin at "constraint NAME: pods ..." have its limits, and count running pods.
        placed: pods that wait and that the plan gives a node.
        left: pods that the plan gives none; they go to Unscheduled.
        arcs: those of the network, in its order; where they are more than is asked for, those that tell most first, and
            others together.
        all_arcs: how many the network has.
        notes: what the arcs do not say.
    """

    policy: str
    drawn: bool
    placed: int
    left: int
    arcs: list[FlowArc]
    all_arcs: int = 0
    notes: list[str] = []


class NetworkAnswer(msgspec.Struct, frozen=True):
    """The flow of a plan: the cluster as it is once the plan is carried out.

    Attributes:
        policies: by name, those that are asked for.
        warnings: sentences about what may change the plan.
        now: the moment that the answer is for; "": unknown.
    """

    policies: list[PolicyFlow]
    warnings: list[str] = []
    now: str = ""


def answer_network(scenario: Scenario, query: NetworkQuery, context: AnswerContext) -> NetworkAnswer:
    """Plans the waiting pods and follows their flow.

    Raises:
        ModelError: a number is below zero.
        UnknownName: no policy has the name of the query.
    """
    if query.most < 0:
        raise ModelError("", f"most {query.most}: give a number from 0 on")
    known = [*sorted(scenario.policies), *({BUILT_IN.name, OBSERVED.name} - scenario.policies.keys())]
    if query.policy and query.policy not in known:
        listed = ", ".join(sorted(known)[:_MAX_NAMES])
        near = did_you_mean(query.policy, known)
        raise UnknownName(f'policy "{query.policy}"', f"no policy has this name; there are {listed}{near}")
    plan = plan_scenario(scenario, context.now, context.models)
    planned = {each.pod.policy for each in plan.result.placements} | {each.pod.policy for each in plan.result.unplaced}
    names = {query.policy} if query.policy else planned
    redacted = Redaction(scenario, context)
    return NetworkAnswer(
        [_policy_flow(scenario, plan, name, query, context) for name in sorted(names)],
        [*map(redacted, (*plan.warnings, *plan.gaps))],
        moment_text(context.now),
    )


def _policy_flow(
    scenario: Scenario, plan: ScenarioPlan, name: str, query: NetworkQuery, context: AnswerContext
) -> PolicyFlow:
    policy = plan.policies.get(name, BUILT_IN)
    placed = [each for each in plan.result.placements if each.pod.policy == name]
    left = [each for each in plan.result.unplaced if each.pod.policy == name]
    is_drawn, notes = policy.draws(network_models(context.models)), list[str]()
    if is_drawn:
        result = plan.result
        refused = next((each.sentence for each in result.contradictions if each.policy == name), "")
        arcs, notes = drawn_flow(
            policy, result.networks.get(name), result.after, placed, left, refused, nodes=query.nodes
        )
    else:
        classes = _classes(scenario, [*placed, *left], context)
        arcs = _plain_flow(plan.result.after.table.nodes, placed, left, classes, _domain_key(policy))
        if limits := list(_limits(policy, plan.result.after)):
            arcs += limits
            notes.append("rows that begin at a constraint count its pods beside the other rows, those that run too")
    rows = summed(arcs, query.most) if query.most else arcs
    return PolicyFlow(name, is_drawn, len(placed), len(left), rows, len(arcs), notes)


def _classes(scenario: Scenario, pods: Iterable[Placement | Unplaced], context: AnswerContext) -> dict[str, str]:
    """The start of arcs of each pod, by key: its workload, or one for all small ones."""
    cluster_pods = scenario.cluster.pods
    workloads = {
        each.pod.key: workload_of(cluster_pods[each.pod.key])
        if context.may_name(each.pod.key)
        else "pods of other namespaces"
        for each in pods
    }
    counts = Counter(workloads.values())
    largest = {name for name, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MAX_WORKLOADS]}
    others = counted(len(counts) - len(largest), "more workload")
    return {key: workload if workload in largest else others for key, workload in workloads.items()}


def _domain_key(policy: Policy) -> str:
    """The label that the policy's constraints group nodes by; zones where they group them by none."""
    keys = (each.topology_key for each in policy.constraints if not isinstance(each, Global))
    return next((key for key in keys if key != HOSTNAME), ZONE)


def _plain_flow(
    nodes: Sequence[Node], placed: Iterable[Placement], left: Iterable[Unplaced], classes: dict[str, str], key: str
) -> list[FlowArc]:
    """Arcs where a policy draws none: from workloads to zones, from zones to nodes that are alike, to Unscheduled.

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
            domains = domains_of_limit(limit, table)
            counts = DomainCounter.of(after.pod_index.matching_pods(limit_match(limit)), domains, None, table).initial
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
