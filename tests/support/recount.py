"""What cluster and ledger know of nodes and pods, counted anew from the pods and the ledger's reservations."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.reservation import Reservation
from thalweg_operator.reservations.ledger.transitions import Phase

from flowcore.cluster.cluster import Cluster
from flowcore.cluster.occupancy import Excess, NodeUsageSums
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass


def recounted(cluster: Cluster, ledger: Ledger) -> dict[str, NodeUsageSums]:
    """What is taken on each node, by bound pods and reservations."""
    uses: defaultdict[str, NodeUsageSums] = defaultdict(NodeUsageSums)
    for pod in cluster.pods.values():
        if pod.node_name and not pod.terminal:
            uses[pod.node_name].change(pod.usage, pod.pod_class, 1)
    waiting: defaultdict[str, list[Reservation]] = defaultdict(list)
    for reservation in ledger.reservations.values():
        pod_class = reservation.pod.pod_class
        if reservation.phase is Phase.AWAITING_VICTIM:
            waiting[reservation.node].append(reservation)
            uses[reservation.node].change_claims(pod_class, 1)
        else:
            uses[reservation.node].change(pod_class.requests, pod_class, 1)
    for node, reservations in waiting.items():
        uses[node].change_excess(_excess(cluster, node, reservations), 1)
    return dict(uses)


def _excess(cluster: Cluster, node: str, reservations: Sequence[Reservation]) -> Excess:
    """What pods that wait on a node need beyond what their victims there hold."""
    coming, leaving = NodeUsageSums(), NodeUsageSums()
    for reservation in reservations:
        pod_class = reservation.pod.pod_class
        coming.change(pod_class.requests, PodClass(unrequested=pod_class.unrequested), 1)
    for victim in sorted({key for each in reservations for key in each.victims}):
        if cluster.pods[victim].node_name == node:
            pod = cluster.pods[victim]
            leaving.change(pod.usage, PodClass(unrequested=pod.pod_class.unrequested), 1)
    return Excess(
        tuple((name, max(0, amount - leaving.amounts[name])) for name, amount in coming.amounts.items()),
        max(0, coming.pods - leaving.pods),
        max(0, coming.cpu - leaving.cpu),
        max(0, coming.memory - leaving.memory),
    )


def recounted_pods(cluster: Cluster, ledger: Ledger) -> Counter[tuple[PodSignature, str]]:
    """How many pods of each signature are on each node, bound or reserved."""
    leaving = {key for each in ledger.reservations.values() for key in each.victims}
    bound = (
        (msgspec.structs.replace(pod.signature, deleting=pod.deleting or pod.key in leaving), pod.node_name)
        for pod in cluster.pods.values()
        if pod.node_name and not pod.terminal
    )
    return Counter([*bound, *((each.pod.signature, each.node) for each in ledger.reservations.values())])


def plain(uses: Mapping[str, NodeUsageSums]) -> dict[str, tuple[Any, ...]]:
    """The same as values that can be compared, without nodes on which nothing is taken."""
    return {
        name: (
            {resource: amount for resource, amount in use.amounts.items() if amount},
            use.pods, use.cpu, use.memory, dict(use.ports), dict(use.volumes),
        )
        for name, use in uses.items()
        if not use.empty
    }  # fmt: skip


def check_recount(cluster: Cluster, ledger: Ledger) -> None:
    """Each node holds its bound pods and the ledger's; the indexes of both agree with the reservations."""
    occupancy = cluster.occupancy
    assert not any(use.empty for use in occupancy.usage.values())
    assert plain(occupancy.usage) == plain(recounted(cluster, ledger)), "the usage of a node is not bound + ledger"
    counted = {(signature, node): count for signature, node, count in occupancy.pod_index.counts() if count}
    assert counted == recounted_pods(cluster, ledger), "the pods on a node are not bound + ledger"
    reservations = ledger.reservations
    by_node: defaultdict[str, set[str]] = defaultdict(set)
    for key, reservation in reservations.items():
        by_node[reservation.node].add(key)
    assert ledger.by_node == by_node
    for name, phase in (
        ("held", Phase.HELD),
        ("preparing", Phase.PREPARING),
        ("paused", Phase.PAUSED),
        ("withdrawing", Phase.WITHDRAWING),
    ):
        assert getattr(ledger, name) == {key for key, each in reservations.items() if each.phase is phase}
    users: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for key, reservation in reservations.items():
        for claim in reservation.device_claims:
            users[claim.key].add(key)
        if reservation.bound_with:
            groups[reservation.bound_with].add(key)
    assert ledger.device_claims.users == users
    assert not ledger.device_claims.ended, "what a pod had is not given back"
    assert ledger.bound_together.members == groups
    unready = {
        name: waiting
        for name, keys in groups.items()
        if (waiting := {key for key in keys if key in ledger.preparing and not reservations[key].is_ready})
    }
    assert ledger.bound_together.unready == unready
    assert not ledger.bound_together.lost
    promised: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for key, reservation in reservations.items():
        for choice in reservation.volumes:
            promised[choice.key].add(key)
    assert {key: promise.pods for key, promise in cluster.storage.promises.items()} == promised
    assert ledger.awaiting == {key for key, each in reservations.items() if each.phase is Phase.AWAITING_VICTIM}
    for_pods: defaultdict[str, set[str]] = defaultdict(set)
    for key, reservation in reservations.items():
        for victim in reservation.victims:
            for_pods[victim].add(key)
    assert {key: record.for_pods for key, record in ledger.victims.items()} == for_pods
    assert cluster.leaving == set(ledger.victims)
    for key, victim_record in ledger.victims.items():
        assert victim_record.pod == cluster.pods[key], f"{key} is not remembered as it is"
    members: defaultdict[str, set[str]] = defaultdict(set)
    for key, reservation in reservations.items():
        if reservation.waiting_group:
            members[reservation.waiting_group].add(key)
    assert {name: waiting_group.members for name, waiting_group in ledger.waiting_groups.items()} == members
    for key, record in ledger.pending.items():
        assert cluster.waiting[key].uid == record.uid, f"{key} does not wait, and something is remembered of it"
