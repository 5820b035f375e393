"""Pods that take the place of running ones: the victim is evicted, and leaves only when its successor can start.

The successor has a reservation in phase AWAITING_VICTIM. Here its victim is evicted, and what is not wanted any more is
given up; also where the node, or what runs there, is no longer what the successor was planned with: then the victim
stays, and the next round judges again. Once the victim has left, its room is kept (HELD) and the successor comes into a
round again, which judges it by every filter as things are then; only then is it bound, or nominated. Nothing of this is
written down: after a restart the victim is there, and all begins anew, or it is being deleted and waited for, or it is
gone and the successor is placed like any other pod.
"""

from __future__ import annotations

from flowcore.cluster.cluster import Cluster
from flowcore.cluster.snapshot import Victim
from flowcore.cluster.victims import find_victim, forbidden_reason, victim_key
from flowcore.explain.codes import REPLACEMENT
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.effects import Evict, WriteCondition
from thalweg_operator.reservations.feasibility import holds
from thalweg_operator.reservations.ledger import Ledger
from thalweg_operator.reservations.reservation import NEVER, Owner, Reservation
from thalweg_operator.reservations.step import Step

#: Seconds that the API server may refuse an eviction before the successor's room is given back for a while.
EVICTION_TIMEOUT = 60.0
#: Seconds after which an eviction that came to nothing is asked for again.
_RETRY_SECONDS = 5.0


def look_after_victims(step: Step) -> None:
    """Begins what is new, gives up what is not wanted or takes too long."""
    ledger = step.ledger
    for key in dict.fromkeys([*ledger.successor_by_victim.values(), *ledger.held]):
        reservation = ledger.reservations[key]
        if not may_take_place(step.cluster, ledger, reservation):
            ledger.release(key, reservation.pod.uid)
        elif reservation.victim is not None:
            _wait(step, reservation, reservation.victim)


def _wait(step: Step, reservation: Reservation, victim: Pod) -> None:
    pod, now, ledger = reservation.pod, step.now, step.ledger
    steered = _is_steered(reservation)
    if reservation.waits_since == NEVER:
        reservation = ledger.change(pod.key, waits_since=now, eviction_asked=now - _RETRY_SECONDS)
        step.effects.append(WriteCondition(pod, _waits(reservation, victim), REPLACEMENT, steered))
    if step.cluster.pods[victim.key].deleting:
        return  # it will go, however long it takes
    if now - reservation.waits_since > EVICTION_TIMEOUT:
        why = reservation.eviction_problem or "the API server does not answer"
        ledger.release(pod.key, pod.uid)
        step.pod_refused(pod, f"{_waits(reservation, victim)} {_not_now(why)}", REPLACEMENT, steered=steered)
    elif now - reservation.eviction_asked >= _RETRY_SECONDS and victim.uid not in ledger.evicting:
        ledger.change(pod.key, eviction_asked=now)
        step.evict(Evict(victim, f"{pod.key} replaces this pod.", pod.key, pod.uid))


def eviction_refused(step: Step, write: Evict, reason: str) -> None:
    """The API server refused to evict a victim: its successor is told so."""
    reservation = step.ledger.reservations.get(write.successor)
    if reservation is not None and is_eviction_wanted(step.cluster, step.ledger, write):
        step.ledger.change(write.successor, eviction_problem=reason)
        text = f"{_waits(reservation, write.pod)} {_not_now(reason)}"
        step.effects.append(WriteCondition(reservation.pod, text, REPLACEMENT, _is_steered(reservation)))


def is_eviction_wanted(cluster: Cluster, ledger: Ledger, write: Evict) -> bool:
    """Whether a victim is still to be evicted. Its successor may have been planned there once more meanwhile."""
    reservation = ledger.reservations.get(write.successor)
    if reservation is None or reservation.victim is None:
        return False
    if (reservation.pod.uid, reservation.victim.uid) != (write.successor_uid, write.pod.uid):
        return False
    return may_take_place(cluster, ledger, reservation)


def may_take_place(cluster: Cluster, ledger: Ledger, reservation: Reservation) -> bool:
    """Whether a pod is still to have its victim's place, and by the same delivery."""
    pod = cluster.waiting.get(reservation.pod.key)
    if pod is None or pod.uid != reservation.pod.uid or pod.blocked_reason:
        return False
    victim = reservation.victim
    if victim is not None and victim_key(pod) != victim.key:
        return False
    policy = cluster.policies.of(pod, cluster.namespaces)
    if policy is None or delivery_of(policy).owner is not reservation.owner:
        return False
    if victim is None or cluster.pods[victim.key].deleting:
        return True  # a pod that leaves anyhow is waited for: what then becomes of its place a round says
    current = cluster.pods[victim.key]
    if forbidden_reason(pod, current, policy, cluster.policies.of(current, cluster.namespaces)):
        return False
    planned = reservation.pod
    return (
        not pod.unsupported_reason
        and (pod.pod_class, pod.signature) == (planned.pod_class, planned.signature)
        and not cluster.node_changed_since(reservation.node, reservation.generation)
        and holds(cluster, ledger, pod.key)
    )


def victim_of(cluster: Cluster, ledger: Ledger, pod: Pod, policy: Policy) -> Victim | None:
    """Whose place a pod that a policy governs is to take, if it may; None: it is placed like any other."""
    found = named_victim(cluster, ledger, pod)
    victim = None if found is None or found.has_left or found.unschedulable_reason else cluster.pods.get(found.key)
    if victim is None:
        return found
    why = forbidden_reason(pod, victim, policy, cluster.policies.of(victim, cluster.namespaces))
    return Victim(victim.key, unschedulable_reason=why) if why else found


def named_victim(cluster: Cluster, ledger: Ledger, pod: Pod) -> Victim | None:
    """Whose place a waiting pod names, whatever policies say of that; None: it is placed like any other."""
    if pod.key in ledger.held:
        reservation = ledger.reservations[pod.key]
        planned, usage = reservation.pod, cluster.occupancy.usage_of(reservation.node)
        return Victim(
            key=victim_key(pod),
            node=reservation.node,
            usage=planned.pod_class.requests,
            host_ports=planned.pod_class.host_ports,
            signature=planned.signature,
            volumes=tuple(volume for volume in planned.pod_class.volumes if usage.volumes[volume] < 2),
            has_left=True,
        )
    if pod.replaces is None:
        return None
    key = victim_key(pod)
    if key in ledger.successor_by_victim:
        return Victim(unschedulable_reason=f"{ledger.successor_by_victim[key]} already replaces {key}")
    victim = cluster.pods.get(key)
    usage = cluster.occupancy.usage_of("" if victim is None else victim.node_name)
    return find_victim(pod, cluster.pods, usage.ports, usage.volumes)


def _waits(reservation: Reservation, victim: Pod) -> str:
    return f"Waiting for {victim.key} to terminate on {reservation.node}."


def _not_now(why: str) -> str:
    return f"It cannot be evicted now: {why}"


def _is_steered(reservation: Reservation) -> bool:
    return reservation.owner is Owner.STEERING
