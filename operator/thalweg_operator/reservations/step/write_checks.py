"""Checks before each try of a write: whether it is still wanted, and whether a pod may be bound."""

from __future__ import annotations

from dataclasses import dataclass

from flowcore.cluster.cluster import Cluster
from flowcore.model.constraint_limits import all_or_none
from flowcore.model.pods import Pod
from thalweg_operator.reservations.effects import (
    Allocate,
    Bind,
    BindClaim,
    ClearNomination,
    Evict,
    Nominate,
    OpenGate,
    ReleaseClaims,
    WakePod,
    Write,
)
from thalweg_operator.reservations.ledger.feasibility import holds
from thalweg_operator.reservations.ledger.ledger import KeysOnTheWay, Ledger
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.steering.gangs_under_way import has_begun
from thalweg_operator.reservations.steering.nominations import nomination_of
from thalweg_operator.reservations.step.before_binding.device_steps import has_claims
from thalweg_operator.reservations.step.state import State
from thalweg_operator.reservations.victims.partial_gangs import is_gang_eviction_wanted
from thalweg_operator.reservations.victims.victims import is_eviction_wanted
from thalweg_operator.reservations.volume_needs import has_volumes

#: Phases in which a pod's claims are written: before that nobody is bound.
_HAS_CLAIMS = frozenset({Phase.BINDING, Phase.PAUSED})
#: Phases in which a nomination tells others of a pod's node. From then on kube-scheduler or a binding is at it.
_IS_NOMINATED = frozenset({Phase.NOMINATED, Phase.AWAITING_VICTIM, Phase.PREPARING})
#: Why a binding is not sent at the end. The next leader plans the pod.
OPERATOR_ENDS = "operator ends"


def is_wanted(state: State, write: Write, now: float) -> bool:
    """Whether a write is still wanted."""
    cluster, ledger = state.cluster, state.ledger
    match write:
        case Bind():
            return not bind_problem(cluster, ledger, write, retry=True)
        case Allocate() | BindClaim():
            reservation = ledger.reservations.get(write.pod.key)
            return (
                reservation is not None
                and reservation.id == write.reservation
                and reservation.phase is Phase.PREPARING
                and write.node in cluster.nodes
                and not ledger.ends
            )
        case ReleaseClaims():
            # A pod that somebody bound uses its claims. Those of a group are planned for other pods too.
            users = ledger.device_claims.users
            is_used = any((claim.namespace, claim.name) in users for claim in write.claims)
            if write.group is not None:
                return not is_used and not cluster.runs_pod_of(write.group.key)
            if write.pod is None:
                return not is_used
            pod = cluster.pods.get(write.pod.key)
            return pod is None or pod.uid != write.pod.uid or not pod.node_name
        case Nominate():
            # Not if the pod passed: kube-scheduler came upon the node by itself, which saves the write.
            reservation = ledger.reservations.get(write.pod.key)
            return (
                reservation is not None
                and (reservation.id, reservation.write) == (write.reservation, write.write)
                and reservation.phase in _IS_NOMINATED
                and not reservation.rejected
            )
        case ClearNomination():
            reservation = ledger.reservations.get(write.pod.key)
            return reservation is not None and reservation.id == write.reservation
        case OpenGate():
            return _is_gate_unneeded(cluster, ledger, write)
        case WakePod():
            # Not if kube-scheduler has let it through meanwhile.
            key = write.pod.key
            if ledger.in_flight.is_let_through(key):
                return False
            return key in (state.nominations.unseen_wakes if write.unseen else cluster.waiting)
        case Evict():
            if write.gang is not None:
                return is_gang_eviction_wanted(state, write, now)
            return is_eviction_wanted(state, write)


def _is_gate_unneeded(cluster: Cluster, ledger: Ledger, write: OpenGate) -> bool:
    pod = cluster.pods.get(write.pod.key)
    if pod is None or pod.uid != write.pod.uid or not pod.gated:
        return False
    # If the plan has changed meanwhile, it decides anew.
    nomination = nomination_of(ledger, pod.key)
    if nomination is None:
        return write.reservation == 0
    return nomination.id == write.reservation and nomination.phase is not Phase.WITHDRAWING


def bind_problem(cluster: Cluster, ledger: Ledger, write: Bind, *, retry: bool, ends: bool = False) -> str:
    """Why a binding that was not carried out yet must not be sent; "": it may be.

    A pod may have stood in line, or paused, for long: what changed meanwhile was not planned with.

    Args:
        retry: it was tried before.
        ends: the operator ends. It sends what gangs that have begun lack, and what a constraint places together. The
            next leader plans all other pods.
    """
    node, key = write.node, write.pod.key
    if node not in cluster.nodes:
        return "node gone"
    if cluster.node_changed_since(node, write.generation):
        return "node changed"
    if retry and key in ledger.reservations and not holds(cluster, ledger, key):
        return "room taken"
    reservation = ledger.reservations.get(key)
    has_all = reservation is None or (
        has_claims(cluster, reservation)
        and not any(ledger.device_claims.had_twice(reservation.device_claims, cluster.devices))
        and has_volumes(cluster, write.pod, node)
    )
    if reservation is not None and reservation.phase in _HAS_CLAIMS and not has_all:
        return "claims lost"
    gang = cluster.pods.get(key, write.pod).gang  # its controller may make one only now
    begun = gang is not None and has_begun(cluster, ledger, gang.key)
    if ends and not _is_placed_together(cluster, write.pod):
        # Whatever else stands in line may not be sent after all.
        needed = gang is not None and begun and cluster.gangs.lacks_pods(gang.key, _Sent(ledger), besides=key)
        return "" if needed else OPERATOR_ENDS
    if gang is not None and not begun and cluster.gangs.lacks_pods(gang.key, KeysOnTheWay(ledger)):
        return "gang incomplete"
    return ""


@dataclass(frozen=True, slots=True)
class _Sent:
    """Keys of pods whose binding was sent, and may have been carried out."""

    ledger: Ledger

    def __contains__(self, key: object) -> bool:
        reservation = self.ledger.reservations.get(key) if isinstance(key, str) else None
        return reservation is not None and reservation.maybe_bound


def _is_placed_together(cluster: Cluster, pod: Pod) -> bool:
    """Whether a constraint places the pod, or another waiting pod of its gang, together with others or not at all."""
    gang = pod.gang
    members = [pod] if gang is None else [pod, *cluster.gangs.members(gang.key)[0].values()]
    policies = ((member, cluster.policies.of(member, cluster.namespaces)) for member in members)
    return any(policy is not None and all_or_none(member.signature.labels, policy) for member, policy in policies)


def pod_to_tell(cluster: Cluster, ledger: Ledger, key: str, uid: str) -> Pod | None:
    """The pod as it is now if it is still to be told why it waits. One with a reservation is on its way to its node.

    Unless it waits for a victim, or for its volumes or devices, or pauses.
    """
    pod = cluster.waiting.get(key)
    if pod is None or pod.uid != uid:
        return None
    reservation = ledger.reservations.get(key)
    claims = reservation is not None and (reservation.volumes or reservation.device_claims)
    waits = key in ledger.paused or (key in ledger.preparing and claims)
    if reservation is not None and not waits and not ledger.waits_for_victim(key):
        record = ledger.known_record(pod)
        return pod if record is not None and record.opening_refused else None
    return pod
