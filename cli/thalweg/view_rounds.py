"""Rounds for the view: of the operator's messages, of records, and of the plan of a dump."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from thalweg_operator.planning.worker.messages import RoundReply, RoundRequest
from thalweg_view.pictures.node_list import taint_texts
from thalweg_view.rounds import (
    RoundClass,
    RoundEviction,
    RoundGang,
    RoundNode,
    RoundPlan,
    RoundPod,
    RoundPolicy,
)

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.costs.shares.shares import Shares
from flowcore.model.gangs import Gang
from flowcore.model.pods import PodClass
from flowcore.planning.problem.result import Eviction
from flowcore.questions.scenario import GovernedScenario, Scenario, ScenarioPlan


def to_round_plan(request: RoundRequest, reply: RoundReply) -> RoundPlan:
    """A round of an operator."""
    return RoundPlan(
        number=request.number,
        time=request.now,
        seconds=reply.seconds,
        cost=reply.cost,
        lower_bound=reply.lower_bound,
        method=reply.method,
        steps=reply.steps,
        policies=[RoundPolicy(policy.name, policy.delivery) for policy in request.policies],
        classes=_classes(request.classes),
        pending=[
            RoundPod(
                each.key,
                each.pod_class,
                each.policy,
                each.created,
                each.plannable_since or each.created,
                each.gangs,
                each.queue,
            )
            for each in request.pending
        ],
        placements=[(place, node, price) for place, node, price, *_ in reply.placements],
        unplaced=list(reply.unplaced),
        reasons=list(reply.reasons),
        codes=list(reply.codes),
        gangs=[RoundGang(gang.name, gang.min_placed) for gang in request.gangs],
        evictions=[
            RoundEviction(each.key, each.node, each.kind, each.for_pods, each.to, each.reason)
            for each in reply.evictions
        ],
        queue_shares=list(reply.queue_shares),
    )


def recorded_round_plan(request: RoundRequest, reply: RoundReply) -> RoundPlan:
    """A recorded round, with the nodes of its complete request."""
    plan = to_round_plan(request, reply)
    usage = {each.node: each for each in request.usage}
    plan.nodes = []
    for node in request.nodes:
        used = usage.get(node.name)
        amounts, pods = ((), 0) if used is None else (used.amounts, used.pods)
        taints = taint_texts(node.taints)
        plan.nodes.append(
            RoundNode(node.name, node.labels, node.unschedulable, node.allocatable, amounts, pods, taints)
        )
    return plan


def planned_scenario(scenario: Scenario, planned: ScenarioPlan, now: float, seconds: float) -> RoundPlan:
    """The plan of a dump as its only round.

    Args:
        now: seconds since the epoch, of the plan.
        seconds: how long it took.
    """
    result, governed = planned.result, GovernedScenario(scenario)
    policies = {name: at for at, name in enumerate(governed.policies)}
    classes: dict[PodClass, int] = {}
    pods = [*(each.pod for each in result.placements), *(each.pod for each in result.unplaced)]
    places = {pod.key: place for place, pod in enumerate(pods)}
    reasons: dict[tuple[str, str], int] = {}
    unplaced = [
        (places[each.pod.key], reasons.setdefault((each.reason, each.code), len(reasons))) for each in result.unplaced
    ]
    left = tuple(each.pod for each in result.unplaced)
    shares = () if result.after.queues is None else Shares(replace(result.after, pending=left)).report()
    return RoundPlan(
        number=1,
        time=now,
        seconds=seconds,
        cost=result.cost,
        lower_bound=result.lower_bound,
        method=result.method,
        steps=result.steps,
        policies=[RoundPolicy(name, policy.delivery) for name, policy in governed.policies.items()],
        pending=[_to_round_pod(pod, classes.setdefault(pod.pod_class, len(classes)), policies) for pod in pods],
        classes=_classes(classes),
        placements=[(places[each.pod.key], each.node, each.price) for each in result.placements],
        unplaced=unplaced,
        reasons=[reason for reason, _ in reasons],
        codes=[code for _, code in reasons],
        gangs=_gangs(pods, result.after.gangs),
        skipped=planned.skipped,
        evictions=[_to_eviction(each, places) for each in result.evictions],
        queue_shares=list(shares),
        gaps=list(planned.gaps),
    )


def _classes(classes: Iterable[PodClass]) -> list[RoundClass]:
    return [RoundClass(each.requests, each.priority) for each in classes]


def _to_round_pod(pod: PendingPod, pod_class: int, policies: Mapping[str, int]) -> RoundPod:
    return RoundPod(pod.key, pod_class, policies[pod.policy], pod.created, pod.waiting_since, pod.gangs, pod.queue)


def _gangs(pods: Iterable[PendingPod], gangs: Mapping[str, Gang]) -> list[RoundGang]:
    named = sorted({name for pod in pods for name in pod.gangs if name in gangs})
    return [RoundGang(name, gangs[name].min_placed) for name in named]


def _to_eviction(eviction: Eviction, places: Mapping[str, int]) -> RoundEviction:
    return RoundEviction(
        eviction.pod.key,
        eviction.pod.node,
        eviction.kind,
        tuple(places[key] for key in eviction.for_pods),
        eviction.to,
        eviction.reason,
    )
