"""A pod that a policy or a queue keeps waiting: which term, and what the plan would cost without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import msgspec

from flowcore.model.constraint_limits import display_name
from flowcore.model.policies import Policy
from flowcore.questions.diagnosis.answers import WhyKind
from flowcore.questions.diagnosis.evidence.full_arcs import full_arcs
from flowcore.questions.diagnosis.finding import Finding, UnplacedCase
from flowcore.questions.diagnosis.lists import listed
from flowcore.questions.scenario import Scenario, ScenarioPlan, plan_scenario
from flowcore.rules.filters import policy_constraints
from flowcore.rules.reasons.exclusion import smallest_exclusion


def constraint_decides(pod: UnplacedCase) -> Finding | None:
    """The finding for a pod that its policy's constraints keep from every node; None: others do, too."""
    return _without_constraints(pod, _constraints(pod))


def network_decides(pod: UnplacedCase) -> Finding | None:
    """The finding for a pod that arcs of its policy's network keep out; None: others do, too."""
    if pod.policy.network is None or policy_constraints.NAME not in smallest_exclusion(pod.after).filters:
        return None
    step = "Raise the maximum of an arc, draw another way, or add nodes where its ways lead."
    return Finding(WhyKind.CONSTRAINT, pod.unplaced.reason, tuple(full_arcs(pod)), step)


def gang_of_constraint(pod: UnplacedCase) -> Finding | None:
    """The finding for a pod that a constraint makes a gang of with others; None: it waits without that, too."""
    gangs = pod.unplaced.pod.gangs
    makers = [constraint.name for constraint in pod.policy.constraints if display_name(constraint, pod.policy) in gangs]
    return _without_constraints(pod, tuple(makers))


def _without_constraints(pod: UnplacedCase, names: tuple[str, ...]) -> Finding | None:
    if not names:
        return None
    kept = tuple(constraint for constraint in pod.policy.constraints if constraint.name not in names)
    plan = _plan_with(pod, msgspec.structs.replace(pod.policy, constraints=kept))
    if not _places(plan, pod.key):
        return None
    which = f"{'constraint' if len(names) == 1 else 'constraints'} {listed(names)} of policy {pod.policy.name}"
    return Finding(
        WhyKind.CONSTRAINT,
        pod.unplaced.reason,
        (_price(pod, plan, f"Without {which}"),),
        "Raise what the constraint allows, drop it, or add nodes where it allows more.",
    )


def cheaper_to_wait(pod: UnplacedCase) -> Finding:
    """The finding for a pod whose policy waits for a cheaper node."""
    policy = pod.policy
    if policy.network is not None and not policy.unscheduled.wait_for_cheaper_node:
        return Finding(
            WhyKind.CONSTRAINT,
            pod.unplaced.reason,
            (f"All ways of the network of policy {policy.name} cost more than waiting does.",),
            "Lower the cost of an arc, or raise what waiting costs in spec.unscheduled of the policy.",
        )
    unscheduled = msgspec.structs.replace(policy.unscheduled, wait_for_cheaper_node=False)
    plan = _plan_with(pod, msgspec.structs.replace(policy, unscheduled=unscheduled))
    return Finding(
        WhyKind.CONSTRAINT,
        pod.unplaced.reason,
        (_price(pod, plan, f"Without waitForCheaperNode of policy {policy.name}"),),
        "Wait, or raise what waiting costs in spec.unscheduled of the policy.",
    )


def queue_limit(pod: UnplacedCase) -> Finding:
    """The finding for a pod that the limit of its queue, or of one above it, holds back."""
    tree, name = pod.scenario.cluster.queues.tree, pod.unplaced.pod.queue
    limited = [queue for queue in tree.path(name) if tree.queues[queue].limit]
    with _without_limits(pod.scenario, limited):
        plan = plan_scenario(pod.scenario, pod.context.now, pod.context.models)
    which = f"the {'limit' if len(limited) == 1 else 'limits'} of FlowQueue {listed(limited)}"
    return Finding(
        WhyKind.SHARE,
        pod.unplaced.reason,
        (_price(pod, plan, f"Without {which}"),),
        "Wait until pods of the queue end, or raise its limit.",
    )


def _constraints(pod: UnplacedCase) -> tuple[str, ...]:
    """Names of the constraints without which the policy's filter would reject fewer nodes; () where it need not."""
    if policy_constraints.NAME not in smallest_exclusion(pod.after).filters:
        return ()
    reasons = [
        rejection.reason
        for name, rejections in pod.after.by_filter
        if name == policy_constraints.NAME
        for rejection in rejections
        if rejection.nodes.any()
    ]
    own = pod.policy.constraints
    named = [
        constraint.name
        for constraint in own
        if any(display_name(constraint, pod.policy) in reason for reason in reasons)
    ]
    return tuple(named or (constraint.name for constraint in own))


def _plan_with(pod: UnplacedCase, policy: Policy) -> ScenarioPlan:
    """A plan under another version of a policy."""
    changed = replace(pod.scenario, policies={**pod.scenario.policies, policy.name: policy})
    return plan_scenario(changed, pod.context.now, pod.context.models)


@contextmanager
def _without_limits(scenario: Scenario, names: list[str]) -> Iterator[None]:
    queues = scenario.cluster.queues
    before = {name: queues.objects[name] for name in names}
    try:
        for name, queue in before.items():
            queues.put(name, msgspec.structs.replace(queue, limit=()))
        yield
    finally:
        for name, queue in before.items():
            queues.put(name, queue)


def _places(plan: ScenarioPlan, key: str) -> bool:
    return any(each.pod.key == key for each in plan.result.placements)


def _price(pod: UnplacedCase, changed: ScenarioPlan, without: str) -> str:
    """What the plan costs without a term, and what becomes of the pod."""
    cost, now = changed.result.cost, pod.plan.result.cost
    placed = "places it" if _places(changed, pod.key) else "does not place it either"
    return f"{without}, the plan would cost {cost} in place of {now}, and {placed}."
