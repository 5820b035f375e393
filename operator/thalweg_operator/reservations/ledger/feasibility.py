"""Whether room is there for a pod now, beside all placements that are on their way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from flowcore.cluster.cluster import Cluster
from flowcore.cluster.occupancy import NodeUsageSums
from flowcore.model.devices import may_be_devices
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod
from flowcore.model.resources import PODS
from flowcore.rules.devices.pod_claims import lacks_devices
from flowcore.rules.filters.node_ports import clash
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.reservation import Owner, Reservation
from thalweg_operator.reservations.ledger.state import LedgerState
from thalweg_operator.reservations.ledger.transitions import Phase


def fits(
    node: Node | None, usage: NodeUsageSums, pod: Pod, more: Sequence[Pod] = (), fewer: Sequence[Pod] = ()
) -> bool:
    """Whether a pod fits a node with this usage, some more pods and some fewer.

    Args:
        node: None: it is gone, and nothing fits.
        fewer: pods that ``usage`` counts: bound ones by what they use, others by what they request.
    """
    if node is None:
        return False
    allocatable = dict(node.allocatable)
    if usage.pods + 1 + len(more) - len(fewer) > allocatable.get(PODS, 0):
        return False
    amounts = usage.amounts
    if more or fewer:
        amounts = amounts.copy()
        for added in more:
            amounts.update(dict(added.pod_class.requests))
        for removed in fewer:
            amounts.subtract(dict(removed.usage if removed.node_name else removed.pod_class.requests))
    for name, amount in pod.pod_class.requests:
        if amount > allocatable.get(name, 0) - amounts[name] and not _is_by_devices(pod, name, allocatable):
            return False
    if not pod.pod_class.host_ports:
        return True
    ports = usage.ports.copy()
    ports.update(port for added in more for port in added.pod_class.host_ports)
    ports.subtract(port for removed in fewer for port in removed.pod_class.host_ports)
    return not clash(pod.pod_class.host_ports, [port for port, count in ports.items() if count > 0])


def _is_by_devices(pod: Pod, resource: str, allocatable: Mapping[str, int]) -> bool:
    """Whether a pod has an extended resource by devices on a node; whether these are there is for a round to say."""
    devices = pod.pod_class.devices
    if devices is None or not devices.has_extended_claim or allocatable.get(resource):
        return False
    return resource in devices.extended_resources if devices.extended else may_be_devices(resource)


def fits_now(cluster: Cluster, pod: Pod, node: str, more: Sequence[Pod] = (), fewer: Sequence[Pod] = ()) -> bool:
    """Whether a pod fits a node now, with some more pods and some fewer (see ``fits``)."""
    return fits(cluster.nodes.get(node), cluster.occupancy.usage_of(node), pod, more, fewer)


def fits_after(cluster: Cluster, ledger: Ledger, pod: Pod, node: str, victims: Iterable[str] = ()) -> bool:
    """Whether a pod fits a node once these victims have left, and once all others there have left that are awaited.

    The pods that wait for those others count in full, as all that is there or reserved beside them.
    """
    waiting = [reservation for reservation in ledger.awaiting_on(node) if reservation.pod.key != pod.key]
    awaited = {key for reservation in waiting for key in reservation.victims}.union(victims)
    leaving = [victim for key in awaited if (victim := cluster.pods[key]).node_name == node]
    usage = ledger.usage_without_awaiting(node)
    return fits(cluster.nodes.get(node), usage, pod, [reservation.pod for reservation in waiting], leaving)


def holds(cluster: Cluster, ledger: Ledger, key: str) -> bool:
    """Whether the room of a reservation is still there: others may have taken it, or the node is gone.

    For a pod that waits for victims: whether it will be there when they have left.
    """
    held = ledger.reservations[key]
    if held.phase is Phase.AWAITING_VICTIM:
        return fits_after(cluster, ledger, held.pod, held.node, held.victims)
    return fits_now(cluster, held.pod, held.node, fewer=[held.pod])


def may_come(cluster: Cluster, ledger: Ledger, reservation: Reservation) -> bool:
    """Whether a pod whose victims have left has its room now. Victims of others may still hold some of it."""
    waiting = [awaiting for awaiting in ledger.awaiting_on(reservation.node) if awaiting.pod.key != reservation.pod.key]
    if not any(awaiting.victims for awaiting in waiting):
        return True
    usage = ledger.usage_without_awaiting(reservation.node)
    return fits(cluster.nodes.get(reservation.node), usage, reservation.pod)


def infeasible_nodes(state: LedgerState, pod: Pod, nodes: Sequence[str]) -> list[str]:
    """Nodes that the pod will not fit once in-flight placements land.

    kube-scheduler cannot know of bindings of ours that its watch has not shown it yet, nor of nominations that are
    being written. Nominations of a lower priority do not count, as with kube-scheduler itself. Beside bindings of
    ours, pods count that it has let through and we have not seen bound: it knows of those, but not of both. Where we
    have nothing under way, kube-scheduler knows best: its watch may have shown it that a victim left before ours does,
    and it preempts elsewhere for a pod that is kept from its nominated node. Rules between pods are weighed against the
    binder's pods alone: kube-scheduler checks nominated ones itself. It knows nothing of NUMA zones, and must not
    choose devices where the binder does.
    """
    cluster, ledger = state.cluster, state.ledger
    sent_nodes = ledger.in_flight.nodes
    near = [node for node in nodes if node in sent_nodes or node in ledger.by_node]
    full = [node for node in near if _is_kept_off(cluster, ledger, pod, node, is_sent=node in sent_nodes)]
    if pod.pod_class.numa is not None:
        zoneless = state.numa_zones.nodes_without_zone(pod, nodes).difference(full)
        full += [node for node in nodes if node in zoneless]
    if pod.pod_class.devices is not None and ledger.device_turns.is_any_binders:
        known = frozenset(full)
        full += [node for node in nodes if node not in known and is_binders_turn(state, pod, node)]
    return full + ledger.in_flight.infeasible_nodes(pod, nodes, cluster.nodes, cluster.occupancy.pod_index)


def _is_kept_off(cluster: Cluster, ledger: Ledger, pod: Pod, node: str, *, is_sent: bool) -> bool:
    """Whether what is on its way to a node leaves no room for a pod there."""
    reservations = [ledger.reservations[key] for key in ledger.by_node.get(node, ())]
    yielding = [held for held in reservations if _yields(ledger, held, pod)]
    if not is_sent and all(held.owner is Owner.OTHERS or held in yielding for held in reservations):
        return False
    passing = _passing(ledger, node, pod.key) if is_sent else ()
    return not fits_now(cluster, pod, node, passing, [held.pod for held in yielding])


def _yields(ledger: Ledger, held: Reservation, pod: Pod) -> bool:
    """Whether a reservation does not count for a pod: it is its own, or a nomination of a lower priority."""
    if held.pod.key == pod.key:
        return True
    is_nomination = held.owner is not Owner.BINDER and not ledger.in_flight.is_let_through(held.pod.key)
    return is_nomination and held.pod.pod_class.priority < pod.pod_class.priority


def _passing(ledger: Ledger, node: str, besides: str = "") -> list[Pod]:
    """Pods that may be on their way to a node, and have no reservation there."""
    counted = ledger.by_node.get(node, ())
    return [pod for pod in ledger.in_flight.let_through_to(node) if pod.key != besides and pod.key not in counted]


def is_binders_turn(state: LedgerState, pod: Pod, node: str) -> bool:
    """Whether kube-scheduler would choose devices for a pod on a node where the binder does (``DeviceTurns``)."""
    return state.ledger.device_turns.is_binders(node) and _lacks_devices(state.cluster, pod, node)


def is_kube_schedulers_turn(state: LedgerState, node: str) -> bool:
    """Whether kube-scheduler may be choosing devices on a node."""
    return any(_lacks_devices(state.cluster, pod, node) for pod in state.ledger.device_turns.attempts.at(node))


def _lacks_devices(cluster: Cluster, pod: Pod, name: str) -> bool:
    """Whether a pod, as it is now, would get devices on a node.

    What it gets for its extended resources shows only in ``waiting``, and in ``pods`` once it is bound.
    """
    shown = cluster.waiting.get(pod.key) or cluster.pods.get(pod.key)
    pod = shown if shown is not None and shown.uid == pod.uid and shown.pod_class.devices is not None else pod
    devices, node = pod.pod_class.devices, cluster.nodes.get(name)
    if devices is None or node is None:
        return False
    return lacks_devices(devices, cluster.devices.claims, cluster.devices.extended, node)


def conflicts_in_flight(cluster: Cluster, ledger: Ledger, pod: Pod, node: str, fewer: Sequence[Pod] = ()) -> bool:
    """Whether the binder must wait: kube-scheduler may be placing pods there that exclude this one."""
    passing = _passing(ledger, node)
    if passing and not fits_now(cluster, pod, node, passing, fewer):
        return True
    nodes = cluster.nodes
    known = nodes.get(node)
    return known is not None and ledger.in_flight.conflicts(pod, known, nodes, cluster.occupancy.pod_index)
