"""Takes room for planned pods."""

from __future__ import annotations

from collections.abc import Sequence

from flowcore.cluster.cluster import Cluster
from flowcore.cluster.replaced_pod import victim_key
from flowcore.model.pods import Pod
from flowcore.model.resource_claims import PlannedClaim
from flowcore.model.running_pods import EvictionKind
from flowcore.model.volumes import VolumeChoice
from flowcore.planning.plan_document import PlanEviction
from thalweg_operator.reservations.effects import Departure
from thalweg_operator.reservations.ledger.feasibility import conflicts_in_flight, fits_after, fits_now, holds
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.numa_zones import finds_zone
from thalweg_operator.reservations.ledger.reservation import Owner, Reservation
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.ledger.victim_record import VictimRecord

_FIRST_PHASE = {Owner.BINDER: Phase.BINDING, Owner.STEERING: Phase.QUEUED}


def reserve(
    cluster: Cluster,
    ledger: Ledger,
    pod: Pod,
    node: str,
    owner: Owner = Owner.BINDER,
    evictions: Sequence[PlanEviction] = (),
    waiting_group: str = "",
    *,
    optional: bool = False,
    planned: bool = False,
    device_claims: tuple[PlannedClaim, ...] = (),
    volumes: tuple[VolumeChoice, ...] = (),
) -> bool:
    """Takes room for a planned pod if it still waits, has none yet, and fits what is free now.

    Only amounts, ports and NUMA zones are checked: whether the node object is still the planned one, whether rules
    between pods still hold and whether its devices are free is the caller's to ask (``node_changed_since``, ``drift``,
    ``DeviceClaimRecords.had_twice``), and whether its volumes are (``volume_steps.needed``). Nobody checks after the
    binder, so for it pods that kube-scheduler may be placing count too (``conflicts_in_flight``).

    A pod with victims may have their room, but nobody else gets any of it; it is not to be bound before they have left
    (``waits_for_victim``). A place that is held for it is its own already.

    Args:
        evictions: pods that must leave first, beside the pod that it replaces.
        waiting_group: the atomic group that waits for victims as a whole; "": the pod waits by itself, or not.
        optional: whether the group does without it.
        planned: whether the plan in hand places it.
        device_claims, volumes: see ``Reservation``.
    """
    current = cluster.waiting.get(pod.key)
    if current is None or current.uid != pod.uid or current.blocked_reason or current.unsupported_reason:
        return False
    known = ledger.reservations.get(pod.key)
    if known is not None:
        if not _confirm(cluster, ledger, known, current, node, owner):
            return False
        ledger.change(pod.key, device_claims=device_claims, volumes=volumes)
        return True
    victims = _victims(cluster, ledger, current, node, evictions)
    if victims is None:
        return False
    on_node = [victim.pod for victim in victims if victim.pod.node_name == node]
    if victims or waiting_group:
        fits = fits_after(cluster, ledger, current, node, [victim.key for victim in on_node])
    else:
        fits = fits_now(cluster, current, node)
    if not fits or not finds_zone(cluster, ledger, current, node):
        return False
    if owner is Owner.BINDER and conflicts_in_flight(cluster, ledger, current, node, on_node):
        return False
    phase = Phase.AWAITING_VICTIM if victims or waiting_group else _FIRST_PHASE[owner]
    ledger.add(
        current,
        node,
        owner,
        phase,
        victims,
        waiting_group,
        optional=optional,
        planned=planned,
        device_claims=device_claims,
        volumes=volumes,
    )
    return True


def _victims(
    cluster: Cluster, ledger: Ledger, pod: Pod, node: str, evictions: Sequence[PlanEviction]
) -> list[VictimRecord] | None:
    """Victims of a pod that have not left yet; None where one of them may not leave now."""
    victims: list[VictimRecord] = []
    replaced = cluster.pods.get(victim_key(pod))
    if replaced is not None and not replaced.terminal:
        if replaced.node_name != node or replaced.key in ledger.victims:
            return None  # as things stand no plan would have it go there
        victims.append(VictimRecord(replaced, Departure.REPLACEMENT))
    for eviction in evictions:
        victim = cluster.pods.get(eviction.key) if eviction.key != victim_key(pod) else None
        if victim is None or victim.uid != eviction.uid or victim.terminal:
            continue  # it has left already
        if not victim.node_name or (
            eviction.kind is EvictionKind.PREEMPTION and victim.pod_class.priority >= pod.pod_class.priority
        ):
            return None
        victims.append(VictimRecord(victim, Departure(eviction.kind), eviction.to))
    return victims


def is_held_place(held: Reservation, pod: Pod, node: str, owner: Owner) -> bool:
    """Whether a pod was planned once more to the place that is held for it."""
    known = (held.node, held.owner, held.pod.pod_class, held.pod.signature)
    return known == (node, owner, pod.pod_class, pod.signature)


def _confirm(cluster: Cluster, ledger: Ledger, known: Reservation, pod: Pod, node: str, owner: Owner) -> bool:
    if pod.key not in ledger.held or not is_held_place(known, pod, node, owner):
        return False
    if not (holds(cluster, ledger, pod.key) and finds_zone(cluster, ledger, pod, node)) or (
        owner is Owner.BINDER and conflicts_in_flight(cluster, ledger, pod, node, (known.pod,))
    ):
        return False
    ledger.change(pod.key, phase=_FIRST_PHASE[owner], waiting_group="")
    return True
