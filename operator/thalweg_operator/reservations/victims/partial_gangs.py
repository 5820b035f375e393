"""Gangs that are partially placed for too long: their bound pods are evicted, where the policy says so.

A gang is handed on whole, and yet may come to be partially placed: a binding fails, a node dies, a pod is evicted. What
is missing is planned again; this is for when that does not help. The time counts from when it is first seen so
until enough of its pods have a node; a restart of the operator begins it anew.
"""

from __future__ import annotations

from flowcore.cluster.cluster import Cluster
from flowcore.cluster.indexes.gang_registry import PartialGang
from flowcore.model.gang_spec import GangKey
from flowcore.model.policies import PartialBind, Policy
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.effects import Departure, Evict
from thalweg_operator.reservations.victims.moves import PartialSince
from thalweg_operator.reservations.victims.state import VictimsState

#: A gang whose pod was refused just now is not evicted: the next round has another place for the pod, as a rule.
_STUCK_SECONDS = 10.0


def evict_overdue_gangs(state: VictimsState) -> None:
    """Evicts the bound pods of gangs that have been partially placed for too long."""
    ledger, now = state.ledger, state.now
    gangs = state.cluster.gangs
    # A pod that is planned again and again, and never bound, does not begin the time anew.
    state.partial_gangs = {
        gang.key: state.partial_gangs.get(gang.key) or PartialSince(now) for gang in gangs.partial_gangs({})
    }
    stuck = gangs.partial_gangs(ledger.gang_pods()) if state.partial_gangs else []
    for key in state.partial_gangs.keys() - {gang.key for gang in stuck}:
        state.partial_gangs[key].stuck_since = None
    for gang in stuck:
        known = state.partial_gangs[gang.key]
        known.stuck_since = now if known.stuck_since is None else known.stuck_since
        why = _eviction_reason(state, gang, now)
        for pod in gang.bound if why and not (ledger.ends and not known.asked) else ():
            # Once is enough: the evictor asks again where that helps.
            if pod.uid not in known.asked and pod.uid not in state.evicting:
                state.evict(Evict(pod, why, Departure.PARTIAL_GANG, gang=gang.key))
                known.asked.add(pod.uid)


def is_gang_eviction_wanted(state: VictimsState, write: Evict, now: float) -> bool:
    """Whether a pod is still to be evicted, for the same time as a part of its gang."""
    cluster, ledger = state.cluster, state.ledger
    key = write.gang
    if key is None or key not in state.partial_gangs or write.pod.uid not in state.partial_gangs[key].asked:
        return False  # its gang was whole meanwhile
    gang = cluster.gangs.partial_gang(key, ledger.gang_pods())
    return (
        gang is not None
        and any(pod.uid == write.pod.uid for pod in gang.bound)
        and bool(_eviction_reason(state, gang, now))
    )


def gang_eviction_unwanted(state: VictimsState, key: GangKey, uid: str) -> None:
    """An eviction was not sent: it may be asked for anew."""
    if key in state.partial_gangs:
        state.partial_gangs[key].asked.discard(uid)


def _eviction_reason(state: VictimsState, gang: PartialGang, now: float) -> str:
    """Why it is to end, a sentence; "": it is not, or not yet."""
    cluster = state.cluster
    policies = _policies_of(cluster, gang)
    if policies is None or any(policy.gangs.on_partial_bind is not PartialBind.EVICT for policy in policies):
        return ""
    timeout = gang.timeout if gang.timeout is not None else max(policy.gangs.timeout for policy in policies)
    known = state.partial_gangs[gang.key]
    stuck = 0.0 if known.stuck_since is None else now - known.stuck_since
    if now - known.since < timeout or stuck < min(timeout, _STUCK_SECONDS):
        return ""
    return (
        f"{gang.name} has been partially placed for {timeout} s: {len(gang.bound)} of its pods have a node, "
        f"and it needs more (gangs.onPartialBind of policy {policies[0].name})."
    )


def _policies_of(cluster: Cluster, gang: PartialGang) -> list[Policy] | None:
    """Policies of all of its pods; None where one is not for us to place: then the gang is not ours to end."""
    policies: dict[str, Policy] = {}
    for pod in (*gang.bound, *gang.waiting):
        policy = cluster.policies.of(pod, cluster.namespaces)
        if policy is None or delivery_of(policy).owner is None:
            return None
        policies[policy.name] = policy
    return list(policies.values())
