"""Takes room for planned pods."""

from __future__ import annotations

from flowcore.cluster.cluster import Cluster
from flowcore.cluster.victims import victim_key
from flowcore.model.pods import Pod
from thalweg_operator.reservations.feasibility import conflicts_in_flight, fits_now, holds
from thalweg_operator.reservations.ledger import Ledger
from thalweg_operator.reservations.reservation import Owner, Reservation
from thalweg_operator.reservations.transitions import Phase

_FIRST_PHASE = {Owner.BINDER: Phase.BINDING, Owner.STEERING: Phase.QUEUED}


def reserve(cluster: Cluster, ledger: Ledger, pod: Pod, node: str, owner: Owner = Owner.BINDER) -> bool:
    """Takes room for a planned pod if it still waits, has none yet, and fits what is free now.

    Only amounts and ports are checked: whether the node object is still the planned one and whether rules between
    pods still hold is the caller's to ask (``node_changed_since``, ``drift``). Nobody checks after the binder, so
    for it pods that kube-scheduler may be placing count too (``conflicts_in_flight``).

    A pod that takes the place of another may have that one's room, but nobody else gets any of it; it is not to be
    bound before that one has left (``waits_for_victim``). A place that is held for it is its own already.
    """
    current = cluster.waiting.get(pod.key)
    if current is None or current.uid != pod.uid or current.blocked_reason or current.unsupported_reason:
        return False
    known = ledger.reservations.get(pod.key)
    if known is not None:
        return _confirm(cluster, ledger, known, current, node, owner)
    victim = cluster.pods.get(victim_key(current))
    if victim is not None and not victim.terminal:
        if victim.node_name != node or victim.key in ledger.successor_by_victim:
            return False  # as things stand no plan would have it go there
    else:
        victim = None
    fewer = () if victim is None else (victim,)
    if not fits_now(cluster, current, node, fewer=fewer) or (
        owner is Owner.BINDER and conflicts_in_flight(cluster, ledger, current, node, fewer)
    ):
        return False
    phase = Phase.AWAITING_VICTIM if victim is not None else _FIRST_PHASE[owner]
    ledger.add(current, node, owner, phase, victim)
    return True


def _confirm(cluster: Cluster, ledger: Ledger, known: Reservation, pod: Pod, node: str, owner: Owner) -> bool:
    if pod.key not in ledger.held:
        return False
    planned = known.pod
    if (known.node, known.owner, planned.pod_class, planned.signature) != (
        node,
        owner,
        pod.pod_class,
        pod.signature,
    ):
        ledger.release(pod.key, pod.uid)  # planned anew, like any other
        return False
    if not holds(cluster, ledger, pod.key) or (
        owner is Owner.BINDER and conflicts_in_flight(cluster, ledger, pod, node, (known.pod,))
    ):
        return False
    ledger.change(pod.key, phase=_FIRST_PHASE[owner])
    return True
