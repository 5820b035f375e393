"""What a step reads and changes of reservations, and what it has decided so far."""

from __future__ import annotations

from typing import Final

from flowcore.cluster.cluster import Cluster
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from flowcore.model.volumes import Claim
from thalweg_operator.reservations.effects import ClearNomination, Effect, Nominate, WriteCondition
from thalweg_operator.reservations.ledger import backoff
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.numa_zones import NumaZones
from thalweg_operator.reservations.ledger.reservation import NEVER, Owner, Reservation
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.waiting_codes import BACKING_OFF

#: As kube-scheduler has it (DynamicResourcesArgs.bindingTimeout).
DEVICE_TIMEOUT: Final = 600.0


class LedgerState:
    """State and effects of a step. ``victims`` and ``steering`` add their own records.

    Attributes:
        cluster, ledger: what is there, and what is on its way.
        numa_zones: what is free in the NUMA zones of nodes, beside all that is on its way.
        is_delivering: a plan is being carried out, and more of it is to come.
        device_timeout: seconds that a driver may take until allocated devices are ready.
        now: seconds of a monotonic clock, of the step under way.
        effects: what that step has decided so far, in this order.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.ledger = cluster, Ledger(cluster)
        self.numa_zones = NumaZones(cluster, self.ledger)
        self.is_delivering = False
        self.device_timeout = DEVICE_TIMEOUT
        self.now = NEVER
        self.effects: list[Effect] = []

    def policy_of(self, pod: Pod) -> Policy | None:
        """The policy that governs a pod."""
        return self.cluster.policies.of(pod, self.cluster.namespaces)

    def is_ours_to_bind(self, pod: Pod) -> bool:
        """Whether a policy governs a pod, and says that we bind it."""
        policy = self.policy_of(pod)
        return policy is not None and policy.delivery.binds

    def node_rejected(self, pod: Pod, node: str) -> None:
        """kube-scheduler's own filters reject a node for a pod: the pair pauses, longer each time."""
        backoff.node_rejected(self.cluster, self.ledger, pod, node, self.now)

    def pod_refused(self, pod: Pod, reason: str, code: str = BACKING_OFF, *, steered: bool = False) -> None:
        """Pauses a pod for which the API server refuses a write, whatever its node, and tells it why."""
        backoff.refused(self.ledger, pod, self.now)
        self.effects.append(WriteCondition(pod, reason, code, steered))

    def volumes_late(self, pod: Pod, claims: tuple[Claim, ...], reason: str) -> None:
        """Pauses a pod whose claims were not bound in time, and tells it why."""
        backoff.volumes_late(self.ledger, pod, claims, self.now)
        self.effects.append(WriteCondition(pod, reason, BACKING_OFF))

    def write_nomination(self, pod: Pod, **fields: object) -> None:
        """Writes the node of a pod's reservation on the pod, for the first time or once more.

        Args:
            fields: of the reservation, which change with it.
        """
        write = self.ledger.reservations[pod.key].write + 1
        after = self.ledger.change(pod.key, writing=True, write=write, **fields)
        self.effects.append(Nominate(pod, after.node, after.id, after.write))

    def clear_nomination(self, pod: Pod) -> None:
        """Clears the nomination of a pod. Its reservation ends once that is seen."""
        reservation = self.ledger.reservations[pod.key]
        if reservation.phase is not Phase.WITHDRAWING:
            self.ledger.change(pod.key, phase=Phase.WITHDRAWING)
        if not reservation.clearing:
            self.ledger.change(pod.key, clearing=True)
            self.effects.append(ClearNomination(pod, reservation.id))

    def clear_ended(self, ended: Reservation) -> None:
        """Clears our nomination for a reservation that has ended, if it is there. Until that is seen it holds room."""
        ledger, pod = self.ledger, self.cluster.waiting.get(ended.pod.key)
        if pod is None or pod.uid != ended.pod.uid or pod.key in ledger.reservations:
            return
        if ended.node == pod.nominated_node == pod.planned_node:
            ledger.add(pod, ended.node, Owner.STEERING, Phase.NOMINATED)
            ledger.change(pod.key, since=self.now)
            self.clear_nomination(pod)
