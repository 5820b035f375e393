"""Pauses by a monotonic clock, since the wall clock may be set.

Waiting pods pause that could not go where they were planned. Running pods whose eviction was refused are in no plan of
evictions for a while.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flowcore.cluster.cluster import Cluster
from flowcore.model.pods import Pod
from flowcore.model.volumes import Claim, key_of
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.records.pending import RejectedNode
from thalweg_operator.reservations.ledger.victim_record import UnevictablePod

#: Seconds that a pod pauses at most whose write was refused.
_MAX_POD_BACKOFF = 60.0
#: Seconds that a pod pauses where kube-scheduler may be placing another one just now.
_CONFLICT_BACKOFF = 0.25
#: Seconds that a pod and a node that kube-scheduler rejected for it pause at most.
_MAX_NODE_BACKOFF = 300.0
#: How often in a short time a node may be rejected before the pod pauses by itself.
_REJECTIONS_AT_ONCE = 3
#: Seconds of the first and of the longest pause of a pod whose volumes were not there in time. At its longest it is the
#: time that they are waited for: a provisioner that never answers then holds room half of the time.
_FIRST_LATE_BACKOFF, _MAX_LATE_BACKOFF = 60.0, 600.0
#: Seconds of the first and of the longest pause after a refused eviction.
_FIRST_EVICTION_BACKOFF, _MAX_EVICTION_BACKOFF = 5.0, 300.0


def refused(ledger: Ledger, pod: Pod, now: float) -> None:
    """The API server refused a write for a pod: it pauses, twice as long each time."""
    record = ledger.record(pod)
    record.backoff_until = now + _delay(record.backoff_tries, _MAX_POD_BACKOFF)
    record.backoff_tries += 1


def conflicted(ledger: Ledger, pod: Pod, now: float) -> None:
    """kube-scheduler may be placing others where the pod was to go: it pauses for a moment."""
    record = ledger.record(pod)
    record.backoff_until, record.backoff_tries = now + _CONFLICT_BACKOFF, 0


def node_rejected(cluster: Cluster, ledger: Ledger, pod: Pod, node: str, now: float) -> None:
    """kube-scheduler's own filters reject a node for a pod: the pair pauses, twice as long each time."""
    nodes = ledger.record(pod).rejected_nodes
    tries = (nodes[node].tries if node in nodes else 0) + 1
    nodes[node] = RejectedNode(now + _delay(tries, _MAX_NODE_BACKOFF), cluster.generation, tries)
    ledger.round_wanted = True


def is_rejected_often(ledger: Ledger, pod: Pod) -> bool:
    """Whether so many nodes were rejected for a pod that it is not to be planned at once."""
    return sum(rejected.tries for rejected in ledger.record(pod).rejected_nodes.values()) > _REJECTIONS_AT_ONCE


def volumes_late(ledger: Ledger, pod: Pod, claims: tuple[Claim, ...], now: float) -> None:
    """Volumes of a pod were not there in time: it pauses, twice as long each time, until its claims change.

    Args:
        claims: those that were not bound, as they are.
    """
    record = ledger.record(pod)
    record.backoff_until = now + min(_MAX_LATE_BACKOFF, _FIRST_LATE_BACKOFF * 2.0 ** min(record.late_tries, 16))
    record.backoff_tries += 1
    record.late_tries += 1
    record.late_claims = claims


def late_claims(cluster: Cluster, ledger: Ledger, pod: Pod) -> tuple[Claim, ...]:
    """Volume claims of a pod that were not bound in time, and nothing has changed since."""
    record = ledger.known_record(pod)
    if record is None or not record.late_claims or _have_changed(cluster, record.late_claims):
        return ()
    return record.late_claims


def _have_changed(cluster: Cluster, claims: tuple[Claim, ...]) -> bool:
    return any(cluster.storage.objects.get(key_of(claim)) != claim for claim in claims)


def is_backing_off(cluster: Cluster, ledger: Ledger, pod: Pod, now: float) -> bool:
    """Whether a pod is not to be planned now. Who waits for volumes is planned once one of its claims changes."""
    record = ledger.known_record(pod)
    if record is None:
        return False
    if record.late_claims and _have_changed(cluster, record.late_claims):
        record.backoff_until, record.late_tries, record.late_claims = now, 0, ()
    return record.backoff_until > now


def rejected_nodes(cluster: Cluster, ledger: Ledger, pod: Pod, now: float) -> list[str]:
    """Nodes that a pod is not to be planned for now: rejected not long ago, and no different since."""
    record = ledger.known_record(pod)
    if record is None or not record.rejected_nodes:
        return []
    # A pair that is rejected again soon after its pause goes on where it was.
    record.rejected_nodes = {
        node: rejected for node, rejected in record.rejected_nodes.items() if rejected.until + _MAX_NODE_BACKOFF > now
    }
    return sorted(
        node
        for node, rejected in record.rejected_nodes.items()
        if rejected.until > now and not cluster.node_changed_since(node, rejected.generation)
    )


def eviction_refused(ledger: Ledger, uid: str, reason: str, now: float) -> None:
    """The API server refuses to evict a pod: it pauses, twice as long each time."""
    known = ledger.unevictable.get(uid)
    tries = 0 if known is None else known.tries
    pause = min(_MAX_EVICTION_BACKOFF, _FIRST_EVICTION_BACKOFF * 2.0 ** min(tries, 16))
    ledger.unevictable[uid] = UnevictablePod(reason, now + pause, tries + 1)


def unevictable_reasons(ledger: Ledger, now: float) -> Mapping[str, str]:
    """Why pods are not to be evicted now, by UID."""
    return {uid: pod.reason for uid, pod in ledger.unevictable.items() if pod.until > now}


def forget_unevictable(ledger: Ledger, now: float) -> None:
    """Forgets pods whose pause ended long ago. Until then another refusal makes the pause longer."""
    if ledger.unevictable:
        ledger.unevictable = {
            uid: pod for uid, pod in ledger.unevictable.items() if pod.until + _MAX_EVICTION_BACKOFF > now
        }


def expiries(ledger: Ledger, after: float) -> Iterator[float]:
    """Times after ``after`` at which pauses end; pauses of running pods that could not be evicted are among them."""
    yield from (pod.until for pod in ledger.unevictable.values() if pod.until > after)
    for record in ledger.pending.values():
        if record.backoff_until > after:
            yield record.backoff_until
        for rejected in record.rejected_nodes.values():
            if rejected.until > after:
                yield rejected.until


def _delay(tries: int, longest: float) -> float:
    return min(longest, 2.0 ** min(tries, 16))
