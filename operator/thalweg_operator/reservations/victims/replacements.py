"""Places for the replacements of pods that leave their nodes.

A replacement is made by the controller of the pod that leaves, after it leaves. So a placeholder has the reservation
from before the eviction, in phase AWAITING_REPLACEMENT. The controller's next pod that is alike takes the place: it is
HELD for the pod, and a round confirms it by every filter. Nothing of this is written down: after a restart a
replacement is placed like any other pod.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flowcore.cluster.cluster import Cluster
from flowcore.cluster.running import immovable_reason
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import DuringExecution, Policy, ReschedulingMode, ReschedulingReason
from flowcore.model.running_pods import RecentMove
from flowcore.planning.plan_document import PlanEviction
from flowcore.rules.devices.pod_claims import ClaimRejection, asking_anew, claims_of
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.effects import CountMove, Departure
from thalweg_operator.reservations.ledger.feasibility import conflicts_in_flight, fits_now, holds
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.ledger.victim_record import VictimRecord
from thalweg_operator.reservations.victims.moves import MOVES, Move
from thalweg_operator.reservations.victims.state import VictimsState

#: Seconds that a place waits for a replacement once the pod leaves, and again once it is gone.
REPLACEMENT_TIMEOUT = 300.0
#: Seconds for which a rule counts as broken once a plan has said so: other pods come and go, and may mend it.
RULE_TIMEOUT = 60.0
#: Seconds that a move counts for the limits of its policy.
_HOUR = 3600.0


def place_key(victim: Pod) -> str:
    """Key of the place of a pod's replacement; no pod has such a name."""
    return f"{victim.key}~{victim.uid}"


# --- before the eviction ---


def reserve_places(state: VictimsState, evictions: Sequence[PlanEviction], generation: int) -> list[str] | None:
    """Takes room for the replacements of pods that are to leave, where the plan has some.

    A pod that is moved leaves only if its replacement has a place. Other victims leave anyhow.

    Args:
        generation: of the cluster, when the plan was asked for.

    Returns:
        Keys of the new reservations; None: a pod that is moved has no place any more, and nothing is reserved.
    """
    reserved: list[str] = []
    for eviction in evictions:
        victim = state.cluster.pods.get(eviction.key)
        if not eviction.to or victim is None or victim.uid != eviction.uid:
            continue
        if place_key(victim) in state.ledger.reservations:
            continue  # it leaves for other pods too
        if reserve_place(state, victim, eviction, generation):
            reserved.append(place_key(victim))
        elif Departure(eviction.kind) in MOVES:
            for key in reserved:
                release_place(state, key, "dropped")
            return None
    return reserved


def reserve_place(
    state: VictimsState,
    victim: Pod,
    eviction: PlanEviction,
    generation: int,
    victims: Sequence[VictimRecord] = (),
) -> bool:
    """Takes room for the replacement of a pod. Returns whether there is room.

    Args:
        generation: of the cluster, when the plan was asked for.
        victims: the pod's record, if no waiting pod waits for its room.
    """
    cluster, ledger, node = state.cluster, state.ledger, eviction.to
    policy, departure = state.policy_of(victim), Departure(eviction.kind)
    owner = _owner(cluster, policy, victim, departure)
    if policy is None or owner is None or not victim.owner or victim.gang is not None:
        return False
    placeholder = _placeholder(cluster, victim)
    signature = cluster.policies.with_policy_rules(placeholder.signature, policy, cluster.services)
    if (
        cluster.node_changed_since(node, generation)
        or ledger.drift.conflicts(signature, cluster.nodes[node], cluster.nodes, cluster.occupancy.pod_index)
        or not fits_now(cluster, placeholder, node)
        or (owner is Owner.BINDER and conflicts_in_flight(cluster, ledger, placeholder, node))
    ):
        return False
    ledger.add(placeholder, node, owner, Phase.AWAITING_REPLACEMENT, victims)
    move = Move(victim, policy, departure, waits_since=state.now, by_controller=eviction.by_controller)
    state.moves.add(placeholder.key, move)
    state.effects.append(CountMove("reserved"))
    return True


def _owner(cluster: Cluster, policy: Policy | None, victim: Pod, departure: Departure) -> Owner | None:
    """Owner of the place; None: we do not place the replacement, or the pod is not to be moved."""
    if policy is None or (departure is Departure.MIGRATION and policy.rescheduling.mode is not ReschedulingMode.ACT):
        return None
    if departure in MOVES and immovable_reason(cluster, victim):
        return None
    return delivery_of(policy).owner


def _placeholder(cluster: Cluster, victim: Pod) -> Pod:
    devices = cluster.as_waiting(victim).pod_class.devices
    devices = None if devices is None else asking_anew(devices, cluster.devices.claims)
    return Pod(
        victim.namespace,
        f"{victim.name}~{victim.uid}",
        victim.uid,
        msgspec.structs.replace(_as_bound(victim.pod_class), devices=devices),
        labels=victim.labels,
        scheduler_name=victim.scheduler_name,
        constraints=victim.constraints,
        owner=victim.owner,
    )


def _as_bound(pod_class: PodClass) -> PodClass:
    """A pod's class without what is not read of bound pods."""
    return msgspec.structs.replace(pod_class, images=(), containers=0)


def is_place_kept(state: VictimsState, key: str) -> bool:
    """Whether a place is as planned, so that the pod may still be evicted for a move."""
    cluster, ledger = state.cluster, state.ledger
    reservation, move = ledger.reservations.get(key), state.moves.awaited.get(key)
    if reservation is None or move is None:
        return False
    victim = cluster.pods.get(move.victim.key, move.victim)
    policy = cluster.policies.of(victim, cluster.namespaces)
    return (
        _owner(cluster, policy, victim, move.departure) is reservation.owner
        and not cluster.node_changed_since(reservation.node, reservation.generation)
        and holds(cluster, ledger, key)
        and (
            move.departure is not Departure.RULE
            or move.by_controller
            or (
                move.policy == policy
                and state.now - move.waits_since <= RULE_TIMEOUT
                and breaks_rule_yet(cluster, victim, reservation.generation)
            )
        )
    )


def breaks_rule_yet(cluster: Cluster, victim: Pod, generation: int) -> bool:
    """Whether a pod that was to leave since a rule does not hold is still to: its policy says so, its node is the same.

    Args:
        generation: of the cluster, when that was planned.
    """
    policy = cluster.policies.of(victim, cluster.namespaces)
    if policy is None or delivery_of(policy).owner is None:
        return False
    if ReschedulingReason.BROKEN_RULES not in policy.rescheduling.reasons:
        return False
    during_execution = victim.during_execution or policy.during_execution
    return during_execution is not DuringExecution.IGNORE and not cluster.node_changed_since(
        victim.node_name, generation
    )


def release_place(state: VictimsState, key: str, outcome: str) -> None:
    """Gives the place of a replacement up."""
    state.moves.discard(key)
    state.ledger.release(key, state.ledger.reservations[key].pod.uid)
    state.effects.append(CountMove(outcome))


# --- after it ---


def replacement_came(state: VictimsState, pod: Pod) -> None:
    """A pod waits and has no reservation: if it replaces a pod that leaves, it takes the place of its replacement.

    A pod with claims that are not made yet does so later: when they are, its status says so.
    """
    ledger, moves = state.ledger, state.moves
    if pod.owner not in moves.by_owner or not _has_its_claims(state.cluster, pod):
        return
    places = [
        key
        for key in moves.by_owner.get(pod.owner, ())
        if not stays(state.cluster, moves.awaited[key].victim) and is_alike(pod, moves.awaited[key].victim)
    ]
    if not places:
        return
    # A pod of a StatefulSet has the name of the one that it replaces.
    key = next((place for place in places if moves.awaited[place].victim.name == pod.name), places[0])
    move, reservation = moves.awaited[key], ledger.reservations[key]
    policy = state.policy_of(pod)
    if policy is None or delivery_of(policy).owner is not reservation.owner:
        return
    moves.left(key, state.now)
    release_place(state, key, "replaced")
    move.replacement = (pod.key, pod.uid)
    ledger.add(pod, reservation.node, reservation.owner, Phase.HELD)
    # The plan in hand counts the placeholder there.
    ledger.drift.pods.change(pod.signature, reservation.node, 1)


def stays(cluster: Cluster, victim: Pod) -> bool:
    """Whether a pod does not leave yet."""
    pod = cluster.pods.get(victim.key)
    return pod is not None and pod.uid == victim.uid and not pod.deleting and not pod.terminal


def is_alike(pod: Pod, victim: Pod) -> bool:
    """Whether a pod asks for what a bound one asked for. Labels may differ: a round judges what they change.

    Each has claims of its own where a template makes them, or its extended resources; the latter are among requests.
    """
    return (pod.namespace, _anonymous(pod.pod_class), pod.constraints) == (
        victim.namespace,
        _anonymous(victim.pod_class),
        victim.constraints,
    )


def _anonymous(pod_class: PodClass) -> PodClass:
    devices = None if pod_class.devices is None else pod_class.devices.anonymous
    return msgspec.structs.replace(_as_bound(pod_class), devices=devices)


def _has_its_claims(cluster: Cluster, pod: Pod) -> bool:
    """Whether the claims of a pod are made: before that a round has no place for it."""
    devices, objects = pod.pod_class.devices, cluster.devices
    if devices is None:
        return True
    return not isinstance(claims_of(devices, objects.claims, objects.classes, objects.extended), ClaimRejection)


def look_after_places(state: VictimsState) -> None:
    """Gives up places that are not wanted any more, and those that no replacement comes for."""
    cluster, ledger, moves, now = state.cluster, state.ledger, state.moves, state.now
    for key, move in list(moves.awaited.items()):
        if stays(cluster, move.victim):
            is_leaving = move.by_controller or move.victim.key in ledger.victims
            is_late = move.by_controller and now - move.waits_since > REPLACEMENT_TIMEOUT
            if not is_leaving or is_late or not is_place_kept(state, key):
                release_place(state, key, "dropped")
            continue
        moves.left(key, now)
        victim = cluster.pods.get(move.victim.key)
        if not move.gone and (victim is None or victim.uid != move.victim.uid):
            move.gone, move.waits_since = True, now
        if now - move.waits_since > REPLACEMENT_TIMEOUT or ledger.reservations[key].node not in cluster.nodes:
            release_place(state, key, "expired")
    moves.forget_before(now - _HOUR)


# --- for rounds ---


def recent_moves(state: VictimsState, now: float) -> tuple[RecentMove, ...]:
    """Moves that count for the limits of policies: under way, or of the last hour."""
    cluster = state.cluster
    moves = state.moves
    planned = {key: move for key, move in moves.awaited.items() if move.departure in MOVES}
    return tuple(
        RecentMove(
            move.policy.name,
            move.victim.node_name,
            move.victim.namespace,
            move.victim.owner,
            0.0 if move.left is None else now - move.left,
            under_way=key in moves.awaited or _waits(cluster, move.replacement),
        )
        for key, move in (planned | moves.past).items()
    )


def places_of_replacements(state: VictimsState) -> set[str]:
    """Names of the nodes where the places of replacements are, until these are bound."""
    reservations = state.ledger.reservations
    replacements = (move.replacement[0] for move in state.moves.past.values() if move.replacement is not None)
    return {reservations[key].node for key in (*state.moves.awaited, *replacements) if key in reservations}


def _waits(cluster: Cluster, replacement: tuple[str, str] | None) -> bool:
    pod = None if replacement is None else cluster.waiting.get(replacement[0])
    return pod is not None and replacement is not None and pod.uid == replacement[1]
