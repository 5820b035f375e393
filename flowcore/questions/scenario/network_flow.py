"""The plan as flow in the networks of its policies: what enters each arc, at what price, within which limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from flowcore.model.amount_text import counted
from flowcore.model.errors import ModelError
from flowcore.model.policies import BUILT_IN, OBSERVED
from flowcore.model.workloads import workload_of
from flowcore.planning.problem.result import Placement, Unplaced
from flowcore.questions.scenario.context import AnswerContext, UnknownName
from flowcore.questions.scenario.flow.drawn_flow import drawn_flow
from flowcore.questions.scenario.flow.flow_arcs import FlowArc, summed
from flowcore.questions.scenario.flow.plain_flow import plain_flow
from flowcore.questions.scenario.near_names import did_you_mean
from flowcore.questions.scenario.plan import ScenarioPlan, plan_scenario
from flowcore.questions.scenario.reading.moment import moment_text
from flowcore.questions.scenario.redaction import Redaction
from flowcore.questions.scenario.scenario import Scenario

#: Workloads that have arcs of their own; the others are one start of arcs.
MAX_WORKLOADS: Final = 20
#: Names that an error lists.
_MAX_NAMES: Final = 20


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
    result, is_drawn = plan.result, policy.network is not None
    if is_drawn:
        refused = next((each.sentence for each in result.contradictions if each.policy == name), "")
        arcs, notes = drawn_flow(policy, result.after, placed, left, refused, nodes=query.nodes)
    else:
        classes = _classes(scenario, [*placed, *left], context)
        arcs, notes = plain_flow(policy, result.after, placed, left, classes)
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
