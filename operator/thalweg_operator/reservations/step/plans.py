"""Carries a plan out: what still holds is reserved, then bound or nominated.

The cluster moves on while a plan is made. What no longer holds is dropped, for the next round to plan again. Placements
of one atomic group (a gang, or gangs that depend on each other) are handed on together or not at all: once each of its
required pods has its reservation, no earlier.
"""

from __future__ import annotations

from flowcore.cluster.cluster import Cluster
from flowcore.cluster.replaced_pod import victim_key
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy, WaitingMode
from flowcore.model.volumes import VolumeChoice
from flowcore.rules.devices.pod_claims import ClaimRejection, claims_of
from flowcore.rules.reasons import before_nodes
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.effects import TOLD_AFTER, Bind, CountPlacement, WriteCondition
from thalweg_operator.reservations.events import (
    PlanMade,
    PlannedPlacement,
    PodsBlocked,
    PodsUnplaced,
    UnplacedPod,
)
from thalweg_operator.reservations.ledger import backoff
from thalweg_operator.reservations.ledger.feasibility import conflicts_in_flight
from thalweg_operator.reservations.ledger.records.devices.device_claims import has_devices
from thalweg_operator.reservations.ledger.reservation import Owner, Reservation
from thalweg_operator.reservations.ledger.reserve import is_held_place, reserve
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.steering import plans as nomination_plans
from thalweg_operator.reservations.steering.nominations import ReservedPlacement, open_gate
from thalweg_operator.reservations.step.before_binding import preparing
from thalweg_operator.reservations.step.plan_in_hand import PlanInHand, Reserved
from thalweg_operator.reservations.step.state import State
from thalweg_operator.reservations.victims import independent_evictions, replacements, victims
from thalweg_operator.reservations.victims.messages import joined
from thalweg_operator.reservations.victims.replaced import named_victim
from thalweg_operator.reservations.volume_needs import needed
from thalweg_operator.reservations.waiting_codes import NO_NODE_TAKES_IT, UNSCHEDULABLE, blocked_code


def plan_made(state: State, event: PlanMade) -> None:
    """Carries a part of a plan out."""
    ledger = state.ledger
    state.nominations.counted_pods.forget()
    if event.first or state.plan is None:
        withdrawing = state.nominations.is_withdrawing
        state.is_delivering = True
        state.plan = PlanInHand(
            broken={group: True for group in event.atomic_groups if withdrawing(group)},
            in_groups=bool(event.atomic_groups) or any(ledger.reservations[key].waiting_group for key in ledger.held),
        )
    plan = state.plan
    independent_evictions.plan_evictions(state, event.evictions, event.generation)
    for placement in event.placements:
        _carry_out(state, plan, event, placement)
    if event.last:
        state.plan, state.is_delivering = None, False
        waited = [name for name in sorted(plan.waiting_groups) if name in ledger.waiting_groups]
        for name in waited:
            if not ledger.waiting_groups[name].members.isdisjoint(ledger.waiting_groups[name].required):
                plan.broken.setdefault(name, False)  # the round has no place any more for a pod of it
        standing = _whole_groups(state, plan, event.generation)
        plan.bound_together = {
            reserved.group: []
            for reserved in standing
            if reserved.group and preparing.is_needed(ledger.reservations[reserved.pod.key])
        }
        for reserved in standing:
            _hand_on(state, plan, reserved)
        for name, keys in plan.bound_together.items():
            preparing.begin(state, keys, f"{name} of plan {event.number}")
        for name in waited:
            members = ledger.waiting_groups[name].members if name in plan.broken else ()
            for key in sorted(members):
                victims.give_up(state, ledger.reservations[key])
        nomination_plans.add_plan(state, plan.nominations)
        state.nominations.planned(keeps_room=event.keeps_room)
        _wait_again(state, plan)
    awaiting, plan.awaiting = plan.awaiting, []
    victims.go_on(state, awaiting)
    if event.evictions:
        independent_evictions.look_after_evictions(state)


def _carry_out(state: State, plan: PlanInHand, event: PlanMade, placement: PlannedPlacement) -> None:
    owner = delivery_of(placement.policy).owner
    if owner is None:
        state.effects.append(CountPlacement("observed"))
        return
    if placement.pod.grows and not placement.waits:
        return  # its node has room for its resize by now
    held = state.ledger.reservations.get(placement.pod.key)
    waiting_group = held.waiting_group if held is not None and held.phase is Phase.HELD else ""
    group, optional = placement.atomic_group, placement.optional
    if held is not None and waiting_group:
        group, optional = waiting_group, held.optional
        plan.waiting_groups.add(waiting_group)
    pod = None if group in plan.broken else _reserve(state, placement, owner, event)
    if pod is None:
        if placement.device_claims is None and not placement.waits:
            # Verdicts on its node and the search for its devices differ: at once it would be planned so again.
            state.pod_refused(placement.pod, f"its claims get no devices on {placement.node} beside those of others")
        conflicts = _drop(state, placement, owner) or plan.broken.get(group, False)
        if plan.broken.get(group):
            backoff.conflicted(state.ledger, placement.pod, state.now)
        if not conflicts:
            plan.dropped.append((placement.pod, placement.policy))
            state.ledger.round_wanted = True
        if group and not optional:
            plan.broken.setdefault(group, conflicts)
        return
    signature = state.cluster.policies.with_policy_rules(pod.signature, placement.policy, state.cluster.services)
    reserved = Reserved(pod, placement, signature, owner, group, optional)
    if plan.in_groups:
        plan.waiting.append(reserved)
    elif _refused_for_volumes(state, reserved):
        state.effects.append(CountPlacement("dropped"))
    else:
        _hand_on(state, plan, reserved)


def _reserve(state: State, placement: PlannedPlacement, owner: Owner, event: PlanMade) -> Pod | None:
    """The pod as it is now, with its room reserved; None where the placement does not hold any more."""
    cluster, ledger, pod, planned = state.cluster, state.ledger, placement.pod, placement.policy
    current = cluster.waiting.get(pod.key)
    policy = None if current is None else state.policy_of(current)
    group = placement.atomic_group
    waiting_group = f"{group} of plan {event.number}" if group and placement.waits else ""
    if (
        current is None
        or policy is None
        or not _acts_as_planned(policy, planned)
        or (current.pod_class, current.signature, current.gang) != (pod.pod_class, pod.signature, pod.gang)
        or cluster.node_changed_since(placement.node, event.generation)
        or not _has_devices(state, placement, event.generation)
        or _breaks_rules(
            state,
            cluster.policies.with_policy_rules(current.signature, policy, cluster.services),
            placement.node,
            reserved=current.key in ledger.held,
        )
    ):
        return None
    held = ledger.reservations.get(current.key)
    if held is not None and held.phase is Phase.HELD and not is_held_place(held, current, placement.node, owner):
        victims.release(state, held)  # planned anew, like any other
        return None
    volumes = _volumes(state, placement, current, held) if owner is Owner.BINDER else ()
    if volumes is None:
        if held is not None and held.phase is Phase.HELD:
            victims.release(state, held)  # planned anew, like any other
        return None
    places = replacements.reserve_places(state, placement.victims, event.generation)
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
        device_claims=placement.device_claims or (),
        volumes=volumes,
    ):
        for key in places:
            replacements.release_place(state, key, "dropped")
        return None
    return current


def _has_devices(state: State, placement: PlannedPlacement, generation: int) -> bool:
    """Whether the devices that claims are to get are as free as the plan knew them."""
    records = state.ledger.device_claims
    if records.is_releasing(placement.pod):
        return False
    if placement.device_claims is None:
        return placement.waits  # victims have them still; a later round says which ones it gets
    if records.pools_changed_since(placement.device_claims, generation):
        return False
    # What claims have already, no plan gives back: see ``device_steps.taken``.
    devices = state.cluster.devices
    return all(has_devices(devices, claim.key) for claim, _ in records.had_twice(placement.device_claims, devices))


def _volumes(
    state: State, placement: PlannedPlacement, pod: Pod, held: Reservation | None
) -> tuple[VolumeChoice, ...] | None:
    """What the volume claims of a pod that we bind still get; None where the plan does not hold any more."""
    if not pod.pod_class.volumes:
        return ()
    pods = state.cluster.pods
    leaving = [pods[key] for key in (victim_key(pod), *(each.key for each in placement.victims)) if key in pods]
    return needed(state.cluster, pod, placement.node, placement.volumes, [*leaving, *([held.pod] if held else ())])


def _acts_as_planned(policy: Policy | None, planned: Policy) -> bool:
    """Whether a pod's policy delivers and demands what it did when the plan was made."""
    return policy is not None and (policy.delivery, policy.constraints) == (planned.delivery, planned.constraints)


def _breaks_rules(state: State, signature: PodSignature, node: str, *, reserved: bool = False) -> bool:
    cluster, drift = state.cluster, state.ledger.drift
    return drift.conflicts(
        signature, cluster.nodes[node], cluster.nodes, cluster.occupancy.pod_index, already_counted=reserved
    )


def _drop(state: State, placement: PlannedPlacement, owner: Owner) -> bool:
    """Drops a placement, on which others of the plan may have counted.

    Returns:
        whether kube-scheduler is at the node: then the pod pauses.
    """
    ledger, pod = state.ledger, placement.pod
    ledger.abandon(pod, placement.node)
    current = state.cluster.waiting.get(pod.key)
    if (
        owner is Owner.BINDER
        and current is not None
        and conflicts_in_flight(state.cluster, ledger, current, placement.node)
    ):
        state.effects.append(CountPlacement("contended"))
        backoff.conflicted(ledger, pod, state.now)
        return True
    state.effects.append(CountPlacement("dropped"))
    return False


def _whole_groups(state: State, plan: PlanInHand, generation: int) -> list[Reserved]:
    """Placements whose group is whole. The reservations of the others end.

    Others may have counted on what ends, so this is repeated until all that is left stands.
    """
    placed, broken = plan.waiting, plan.broken
    while True:
        standing = []
        for reserved in placed:
            group, pod = reserved.group, reserved.pod
            is_refused = _is_ours(state, reserved) and _refused_for_volumes(state, reserved)
            if group not in broken and not is_refused and _stands(state, reserved, generation):
                standing.append(reserved)
                continue
            if group and not reserved.optional:
                broken.setdefault(group, False)
            if _is_ours(state, reserved):
                state.ledger.release(pod.key, pod.uid)
            state.effects.append(CountPlacement("dropped"))
            if broken.get(group):
                backoff.conflicted(state.ledger, pod, state.now)
            else:
                plan.dropped.append((pod, reserved.placement.policy))
        if len(standing) == len(placed):
            return standing
        placed, state.ledger.round_wanted = standing, True


def _wait_again(state: State, plan: PlanInHand) -> None:
    """Pods whose placements did not hold are the next plan's: till then they come before new pods as those of it do."""
    for planned, policy in plan.dropped:
        pod = state.cluster.waiting.get(planned.key)
        if pod is not None and pod.uid == planned.uid and pod.key not in state.ledger.reservations:
            state.nominations.under_way.add(pod, policy)


def _refused_for_volumes(state: State, reserved: Reserved) -> bool:
    """Whether a pod is given up for which others would leave, though its volumes were not there in time before.

    Who left for it would have left in vain once more. It pauses, as after that time.
    """
    ledger, pod = state.ledger, reserved.pod
    late = backoff.late_claims(state.cluster, ledger, pod)
    if not late or not ledger.waits_for_victim(pod.key):
        return False
    names = joined([f'persistentvolumeclaim "{claim.name}"' for claim in late])
    text = f"nobody is evicted for it while these claims, which were not bound in time, are as they were: {names}"
    state.volumes_late(pod, late, text)
    ledger.release(pod.key, pod.uid)
    ledger.round_wanted = True
    return True


def _stands(state: State, reserved: Reserved, generation: int) -> bool:
    """Whether its reservation is there, node and policy as planned, and no rule is broken without what was dropped."""
    node = reserved.placement.node
    if not _is_ours(state, reserved) or state.cluster.node_changed_since(node, generation):
        return False
    current = state.cluster.waiting[reserved.pod.key]
    if not _acts_as_planned(state.policy_of(current), reserved.placement.policy):
        return False
    return not _breaks_rules(state, reserved.signature, node, reserved=True)


def _is_ours(state: State, reserved: Reserved) -> bool:
    """Whether its reservation is still that of the plan: another component may have nominated it since."""
    known, pod = state.ledger.reservations.get(reserved.pod.key), reserved.pod
    return known is not None and (known.pod.uid, known.node, known.owner) == (
        pod.uid,
        reserved.placement.node,
        reserved.owner,
    )


def _hand_on(state: State, plan: PlanInHand, reserved: Reserved) -> None:
    pod, placement, group = reserved.pod, reserved.placement, reserved.group
    state.effects.append(CountPlacement("reserved"))
    if state.ledger.waits_for_victim(pod.key):
        plan.awaiting.append(pod.key)  # other pods must leave their places first
        return
    if reserved.owner is Owner.BINDER:
        if group in plan.bound_together:
            plan.bound_together[group].append(pod.key)  # the claims of all first, then all bindings
        elif preparing.is_needed(state.ledger.reservations[pod.key]):
            preparing.begin(state, [pod.key])
        else:
            state.effects.append(Bind(pod, placement.node, state.cluster.generation))
    else:
        plan.nominations.append(
            ReservedPlacement(
                pod, placement.node, placement.wave, placement.atomic_group, placement.optional, placement.saving
            )
        )


def pods_unplaced(state: State, event: PodsUnplaced) -> None:
    """Tells pods why they wait; a place that was kept for them is given up, and kube-scheduler may choose."""
    for unplaced in event.pods:
        policy, pod = unplaced.policy, unplaced.pod
        delivery = delivery_of(policy)
        if delivery.owner is None:
            continue
        state.ledger.record(pod).unplaced = True
        if unplaced.planned:
            state.ledger.device_claims.want_freed(pod, unplaced.frees)
        if pod.key in state.ledger.held:
            victims.give_up(state, state.ledger.reservations[pod.key])
        current = state.cluster.waiting.get(pod.key)
        if current is not None and current.uid == pod.uid and pod.key not in state.ledger.reservations:
            state.ledger.in_vain.add(pod)  # else it went, or got a place, while the plan was made
        text = unplaced.reason
        if unplaced.planned:
            rejected = backoff.rejected_nodes(state.cluster, state.ledger, pod, state.now)
            if rejected:
                nodes = joined(rejected)
                if delivery.steered:
                    text += f" kube-scheduler refused it on {nodes}: {pod.unschedulable_message}"
                else:
                    text += f" No volume was provisioned for it on {nodes} a short time ago."
        if not unplaced.retried:  # else the next round, which follows at once, says more
            # Autoscalers wait for the condition of a pod that no node takes. The rest of a gang is often on its way. A
            # steered pod has its condition from kube-scheduler.
            lasts = unplaced.condition in NO_NODE_TAKES_IT and pod.gang is None and not delivery.steered
            after = 0.0 if lasts else TOLD_AFTER
            state.effects.append(WriteCondition(pod, text, unplaced.condition, delivery.steered, after))
        if policy.waiting is WaitingMode.AUTO and pod.gated and not pod.names_gang:
            _let_autoscalers_see(state, unplaced)
        if unplaced.retried:
            # Whom kube-scheduler evicts now for the pod, the next round would not know of.
            nomination_plans.hold(state, pod)
        elif delivery.may_choose(policy, pod) and named_victim(state.cluster, state.ledger, pod) is None:
            nomination_plans.set_free(state, pod)  # who replaces another pod may go to one node only


def _let_autoscalers_see(state: State, unplaced: UnplacedPod) -> None:
    """Cluster autoscalers do not look at gated pods: one that a new node may help is let out."""
    if unplaced.planned and unplaced.condition == UNSCHEDULABLE:
        open_gate(state, unplaced.pod)


def pods_blocked(state: State, event: PodsBlocked) -> None:
    """Tells pods why no round may plan them, where no other component does."""
    for pod, policy in event.pods:
        delivery = delivery_of(policy)
        if delivery.is_told(pod):
            reason = pod.skip_reason or _claim_reason(state.cluster, pod)
            state.effects.append(WriteCondition(pod, reason, blocked_code(pod), delivery.steered))


def _claim_reason(cluster: Cluster, pod: Pod) -> str:
    """Why a pod waits whose claim is still to be made, as if a round had planned it; "": it waits for no claim."""
    devices = cluster.devices
    if not pod.awaits_claim or pod.pod_class.devices is None:
        return ""
    claims = claims_of(pod.pod_class.devices, devices.claims, devices.classes, devices.extended)
    return before_nodes(len(cluster.nodes), claims.reason) if isinstance(claims, ClaimRejection) else ""
