"""The place that a waiting pod is to take: the place of the pod that it names, or one that is held for it."""

from __future__ import annotations

from flowcore.cluster.arrays.snapshot import Victim
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.replaced_pod import find_victim, forbidden_reason, victim_key
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from thalweg_operator.reservations.effects import Departure
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.victims import messages


def victim_of(cluster: Cluster, ledger: Ledger, pod: Pod, policy: Policy) -> Victim | None:
    """The pod whose place a governed pod is to take, if it may; None: it is placed like any other."""
    named = named_victim(cluster, ledger, pod)
    victim = None if named is None or named.has_left or named.unschedulable_reason else cluster.pods.get(named.key)
    if victim is None:
        return named
    why = forbidden_reason(pod, victim, policy, cluster.policies.of(victim, cluster.namespaces))
    return Victim(victim.key, unschedulable_reason=why) if why else named


def named_victim(cluster: Cluster, ledger: Ledger, pod: Pod) -> Victim | None:
    """The pod whose place a waiting pod names, whatever policies say; None: it is placed like any other."""
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
            unrequested=planned.pod_class.unrequested,
        )
    if pod.replaces is None:
        return None
    key = victim_key(pod)
    record = ledger.victims.get(key)
    if record is not None:
        replaces = record.departure is Departure.REPLACEMENT
        first = messages.named(ledger.reservations[min(record.for_pods)].pod, pod.namespace)
        reason = f"{first} already replaces {key}" if replaces else f"{key} already leaves for {first}"
        return Victim(unschedulable_reason=reason)
    victim = cluster.pods.get(key)
    usage = cluster.occupancy.usage_of("" if victim is None else victim.node_name)
    queue = "" if victim is None else cluster.queues.of(victim, cluster.namespaces)
    return find_victim(pod, cluster.pods, usage.ports, usage.volumes, queue)
