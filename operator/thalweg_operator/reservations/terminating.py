"""Takes up, after a restart, pods whose victims terminate: nobody else is evicted for them.

All that is written down is a pod's nomination, and that its victims are being deleted. So a nominated pod that fits its
node once the pods have left that terminate there waits for them. A preempted pod has a lower priority, a moved one has
no higher one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowcore.cluster.cluster import Cluster
from flowcore.model.pods import Pod
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.effects import Departure
from thalweg_operator.reservations.feasibility import fits_after, holds
from thalweg_operator.reservations.ledger import Ledger
from thalweg_operator.reservations.nominations import is_nomination
from thalweg_operator.reservations.reservation import Owner, Reservation
from thalweg_operator.reservations.step import Step
from thalweg_operator.reservations.transitions import Phase
from thalweg_operator.reservations.victim_record import Stage, VictimRecord


def wait_for_terminating(step: Step) -> None:
    """Called once, when cluster and policies are known; before nominations are taken over."""
    ledger = step.ledger
    groups: dict[object, list[Reservation]] = {}
    for reservation in ledger.reservations.values():
        if reservation.owner is Owner.STEERING and not is_nomination(reservation):
            gang = reservation.pod.gang
            groups.setdefault(reservation.pod.key if gang is None else gang.key, []).append(reservation)
    waiting = [
        members for members in groups.values() if not all(holds(step.cluster, ledger, each.pod.key) for each in members)
    ]
    by_node = _terminating(step.cluster) if waiting else {}
    for members in waiting:
        if any(by_node.get(each.node) for each in members) and not _wait(step, members, by_node):
            for each in members:
                ledger.add(each.pod, each.node, Owner.STEERING, Phase.NOMINATED)


def _terminating(cluster: Cluster) -> dict[str, list[Pod]]:
    """Pods that terminate, by node."""
    found: dict[str, list[Pod]] = {}
    for pod in cluster.pods.values():
        if pod.node_name and pod.deleting and not pod.terminal:
            found.setdefault(pod.node_name, []).append(pod)
    return found


def _wait(step: Step, members: Sequence[Reservation], by_node: Mapping[str, Sequence[Pod]]) -> bool:
    """Has the pods of a gang, or a pod by itself, wait; whether all of them may. Their reservations end in any case."""
    cluster, ledger = step.cluster, step.ledger
    for each in members:
        ledger.drop(each.pod.key)
    for at, each in enumerate(members):
        pod, policy = each.pod, step.policy_of(each.pod)
        owner = None if policy is None else delivery_of(policy).owner
        victims = [
            victim for victim in by_node.get(each.node, ()) if victim.pod_class.priority <= pod.pod_class.priority
        ]
        if owner is None or not fits_after(cluster, ledger, pod, each.node, [victim.key for victim in victims]):
            _drop_all(ledger, members[:at])
            return False
        records = [
            VictimRecord(victim, Departure.PREEMPTION, stage=Stage.ASKED, leaving_since=step.now) for victim in victims
        ]
        group = "" if pod.gang is None else pod.gang.key.display_name
        ledger.add(pod, each.node, owner, Phase.AWAITING_VICTIM, records, group)
        ledger.change(pod.key, write=1)
    return True


def _drop_all(ledger: Ledger, reservations: Sequence[Reservation]) -> None:
    for each in reservations:
        ledger.drop(each.pod.key)
