"""Carries a plan out: what still holds is reserved, then bound or nominated.

The cluster moves on while a plan is made. What no longer holds is dropped, for the next round to plan again. Placements
of one atomic group (a gang, or gangs that depend on each other) are handed on together or not at all: once each of its
required pods has its reservation, no earlier.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy, WaitingMode
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.effects import Bind, CountPlacement, WriteCondition
from thalweg_operator.reservations.events import (
    PlanMade,
    PlannedPlacement,
    PodsBlocked,
    PodsUnplaced,
    UnplacedPod,
)
from thalweg_operator.reservations.ledger import backoff
from thalweg_operator.reservations.ledger.feasibility import conflicts_in_flight
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.ledger.reserve import is_held_place, reserve
from thalweg_operator.reservations.ledger.step import Step
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.steering import plans as nomination_plans
from thalweg_operator.reservations.steering.nominations import PlannedPod, open_gate
from thalweg_operator.reservations.victims import independent_evictions, replacements, victims
from thalweg_operator.reservations.waiting_codes import UNSCHEDULABLE, blocked_code


class _Reserved(msgspec.Struct, frozen=True, gc=False):
    """A placement with its reservation.

    Attributes:
        signature: as rules between pods see the pod.
        group: what is placed as a whole: the atomic group, or the pods that waited together for victims; "": neither.
        optional: whether the group does without it.
    """

    pod: Pod
    placement: PlannedPlacement
    signature: PodSignature
    owner: Owner
    group: str
    optional: bool


@dataclass(slots=True)
class PlanInHand:
    """A plan that is being carried out.

    Attributes:
        waiting: placements with a reservation that are handed on once the whole plan was seen.
        nominations: placements that kube-scheduler is to bind.
        broken: groups that are not whole any more, and whether that is for kube-scheduler being at a node.
        in_groups: whether any placement belongs to a group, so that nothing is handed on before its end.
        waiting_groups: names of those whose victims have left and whose places this plan confirms.
        awaiting: keys of pods that were handed on just now, and wait for victims.
    """

    waiting: list[_Reserved] = field(default_factory=list)
    nominations: list[PlannedPod] = field(default_factory=list)
    broken: dict[str, bool] = field(default_factory=dict)
    in_groups: bool = False
    waiting_groups: set[str] = field(default_factory=set)
    awaiting: list[str] = field(default_factory=list)


def plan_made(step: Step, event: PlanMade) -> None:
    """Carries a part of a plan out."""
    ledger = step.ledger
    ledger.nominations.counted_pods.forget()
    if event.first or ledger.plan is None:
        withdrawing = ledger.nominations.is_withdrawing
        ledger.plan = PlanInHand(
            broken={group: True for group in event.atomic_groups if withdrawing(group)},
            in_groups=bool(event.atomic_groups) or any(ledger.reservations[key].waiting_group for key in ledger.held),
        )
    plan = ledger.plan
    independent_evictions.plan_evictions(step, event.evictions, event.generation)
    for placement in event.placements:
        _carry_out(step, plan, event, placement)
    if event.last:
        ledger.plan = None
        waited = [name for name in sorted(plan.waiting_groups) if name in ledger.waiting_groups]
        for name in waited:
            if not ledger.waiting_groups[name].members.isdisjoint(ledger.waiting_groups[name].required):
                plan.broken.setdefault(name, False)  # the round has no place any more for a pod of it
        for reserved in _whole_groups(step, plan, event.generation):
            _hand_on(step, plan, reserved)
        for name in waited:
            members = ledger.waiting_groups[name].members if name in plan.broken else ()
            for key in sorted(members):
                victims.give_up(step, ledger.reservations[key])
        nomination_plans.add_plan(step, plan.nominations)
    awaiting, plan.awaiting = plan.awaiting, []
    victims.go_on(step, awaiting)
    if event.evictions:
        independent_evictions.look_after_evictions(step)


def _carry_out(step: Step, plan: PlanInHand, event: PlanMade, placement: PlannedPlacement) -> None:
    owner = delivery_of(placement.policy).owner
    if owner is None:
        step.effects.append(CountPlacement("observed"))
        return
    held = step.ledger.reservations.get(placement.pod.key)
    waiting_group = held.waiting_group if held is not None and held.phase is Phase.HELD else ""
    group, optional = placement.atomic_group, placement.optional
    if held is not None and waiting_group:
        group, optional = waiting_group, held.optional
        plan.waiting_groups.add(waiting_group)
    pod = None if group in plan.broken else _reserve(step, placement, owner, event)
    if pod is None:
        conflicts = _drop(step, placement, owner) or plan.broken.get(group, False)
        if plan.broken.get(group):
            backoff.conflicted(step.ledger, placement.pod, step.now)
        if not conflicts:
            step.ledger.round_wanted = True
        if group and not optional:
            plan.broken.setdefault(group, conflicts)
        return
    signature = with_policy_constraints(pod.signature, placement.policy)
    reserved = _Reserved(pod, placement, signature, owner, group, optional)
    if plan.in_groups:
        plan.waiting.append(reserved)
    else:
        _hand_on(step, plan, reserved)


def _reserve(step: Step, placement: PlannedPlacement, owner: Owner, event: PlanMade) -> Pod | None:
    """The pod as it is now, with its room reserved; None where the placement does not hold any more."""
    cluster, ledger, pod, planned = step.cluster, step.ledger, placement.pod, placement.policy
    current = cluster.waiting.get(pod.key)
    policy = None if current is None else step.policy_of(current)
    group = placement.atomic_group
    waiting_group = f"{group} of plan {event.number}" if group and placement.waits else ""
    if (
        current is None
        or policy is None
        or not _acts_as_planned(policy, planned)
        or (current.pod_class, current.signature) != (pod.pod_class, pod.signature)
        or cluster.node_changed_since(placement.node, event.generation)
        or _breaks_rules(
            step,
            with_policy_constraints(current.signature, policy),
            placement.node,
            reserved=current.key in ledger.held,
        )
    ):
        return None
    held = ledger.reservations.get(current.key)
    if held is not None and held.phase is Phase.HELD and not is_held_place(held, current, placement.node, owner):
        victims.release(step, held)  # planned anew, like any other
        return None
    places = replacements.reserve_places(step, placement.victims, event.generation)
    if places is None:
        return None
    if not reserve(
        cluster,
        ledger,
        pod,
        placement.node,
        owner,
        placement.victims,
        waiting_group,
        optional=placement.optional,
        planned=True,
    ):
        for key in places:
            replacements.release_place(step, key, "dropped")
        return None
    return current


def _acts_as_planned(policy: Policy | None, planned: Policy) -> bool:
    """Whether a pod's policy delivers and demands what it did when the plan was made."""
    return policy is not None and (policy.delivery, policy.constraints) == (planned.delivery, planned.constraints)


def _breaks_rules(step: Step, signature: PodSignature, node: str, *, reserved: bool = False) -> bool:
    cluster, drift = step.cluster, step.ledger.drift
    return drift.conflicts(
        signature, cluster.nodes[node], cluster.nodes, cluster.occupancy.pod_index, already_counted=reserved
    )


def _drop(step: Step, placement: PlannedPlacement, owner: Owner) -> bool:
    """Drops a placement, which others of the plan may have counted on; whether kube-scheduler is at the node.

    Then the pod pauses.
    """
    ledger, pod = step.ledger, placement.pod
    ledger.abandon(pod, placement.node)
    current = step.cluster.waiting.get(pod.key)
    if (
        owner is Owner.BINDER
        and current is not None
        and conflicts_in_flight(step.cluster, ledger, current, placement.node)
    ):
        step.effects.append(CountPlacement("contended"))
        backoff.conflicted(ledger, pod, step.now)
        return True
    step.effects.append(CountPlacement("dropped"))
    return False


def _whole_groups(step: Step, plan: PlanInHand, generation: int) -> list[_Reserved]:
    """Placements whose group is whole. The reservations of the others end.

    Others may have counted on what ends, so this is repeated until all that is left stands.
    """
    placed, broken = plan.waiting, plan.broken
    while True:
        standing = []
        for reserved in placed:
            group, pod = reserved.group, reserved.pod
            if group not in broken and _stands(step, reserved, generation):
                standing.append(reserved)
                continue
            if group and not reserved.optional:
                broken.setdefault(group, False)
            if _is_ours(step, reserved):
                step.ledger.release(pod.key, pod.uid)
            step.effects.append(CountPlacement("dropped"))
            if broken.get(group):
                backoff.conflicted(step.ledger, pod, step.now)
        if len(standing) == len(placed):
            return standing
        placed, step.ledger.round_wanted = standing, True


def _stands(step: Step, reserved: _Reserved, generation: int) -> bool:
    """Whether its reservation is there, node and policy as planned, and no rule is broken without what was dropped."""
    node = reserved.placement.node
    if not _is_ours(step, reserved) or step.cluster.node_changed_since(node, generation):
        return False
    current = step.cluster.waiting[reserved.pod.key]
    if not _acts_as_planned(step.policy_of(current), reserved.placement.policy):
        return False
    return not _breaks_rules(step, reserved.signature, node, reserved=True)


def _is_ours(step: Step, reserved: _Reserved) -> bool:
    """Whether its reservation is still the one that was made for it: somebody else may have nominated it since."""
    known, pod = step.ledger.reservations.get(reserved.pod.key), reserved.pod
    return known is not None and (known.pod.uid, known.node, known.owner) == (
        pod.uid,
        reserved.placement.node,
        reserved.owner,
    )


def _hand_on(step: Step, plan: PlanInHand, reserved: _Reserved) -> None:
    pod, placement = reserved.pod, reserved.placement
    step.effects.append(CountPlacement("reserved"))
    if step.ledger.waits_for_victim(pod.key):
        plan.awaiting.append(pod.key)  # other pods must leave their places first
        return
    if reserved.owner is Owner.BINDER:
        step.effects.append(Bind(pod, placement.node, step.cluster.generation))
    else:
        plan.nominations.append(
            PlannedPod(
                pod, placement.node, placement.wave, placement.atomic_group, placement.optional, placement.saving
            )
        )


def pods_unplaced(step: Step, event: PodsUnplaced) -> None:
    """Tells pods why they wait; a place that was kept for them is given up, and kube-scheduler may choose."""
    for unplaced in event.pods:
        policy, pod = unplaced.policy, unplaced.pod
        delivery = delivery_of(policy)
        if delivery.owner is None:
            continue
        step.ledger.record(pod).unplaced = True
        if pod.key in step.ledger.held:
            victims.give_up(step, step.ledger.reservations[pod.key])
        text = unplaced.reason
        if unplaced.planned:
            rejected = backoff.rejected_nodes(step.cluster, step.ledger, pod, step.now)
            if rejected:
                text += f" kube-scheduler refused it on {', '.join(rejected)}: {pod.unschedulable_message}"
        step.effects.append(WriteCondition(pod, text, unplaced.condition, delivery.steered))
        if policy.waiting is WaitingMode.AUTO and pod.gated and pod.gang is None:
            _let_autoscalers_see(step, unplaced)
        if unplaced.retried:
            # Whom kube-scheduler evicts now for the pod, the next round would not know of.
            nomination_plans.hold(step, pod)
        elif delivery.may_choose(policy, pod):
            nomination_plans.set_free(step, pod)


def _let_autoscalers_see(step: Step, unplaced: UnplacedPod) -> None:
    """Cluster autoscalers do not look at gated pods: one that a new node would help is let out."""
    if unplaced.planned and unplaced.condition == UNSCHEDULABLE:
        open_gate(step, unplaced.pod)


def pods_blocked(step: Step, event: PodsBlocked) -> None:
    """Tells pods that no round may plan why, where nobody else does."""
    for pod, policy in event.pods:
        delivery = delivery_of(policy)
        if delivery.is_told(pod):
            reason, code = pod.skip_reason(policy.delivery), blocked_code(pod, policy)
            step.effects.append(WriteCondition(pod, reason, code, delivery.steered))
