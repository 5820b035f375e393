"""One step of ``advance``: cluster, ledger, the time, and the effects so far."""

from __future__ import annotations

from dataclasses import dataclass

from flowcore.cluster.cluster import Cluster
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from thalweg_operator.reservations.effects import Effect, Evict, WriteCondition
from thalweg_operator.reservations.ledger import backoff
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.waiting_codes import BACKING_OFF


@dataclass(slots=True)
class Step:
    """See the module.

    Attributes:
        now: seconds of a monotonic clock.
        effects: what is to be done, in this order.
    """

    cluster: Cluster
    ledger: Ledger
    now: float
    effects: list[Effect]

    def policy_of(self, pod: Pod) -> Policy | None:
        """The policy that governs a pod."""
        return self.cluster.policies.of(pod, self.cluster.namespaces)

    def node_rejected(self, pod: Pod, node: str) -> None:
        """kube-scheduler's own filters reject a node for a pod: the pair pauses, longer each time."""
        backoff.node_rejected(self.cluster, self.ledger, pod, node, self.now)

    def pod_refused(self, pod: Pod, reason: str, code: str = BACKING_OFF, *, steered: bool = False) -> None:
        """The API server refuses a write for a pod, whatever its node: the pod is told so, and pauses."""
        backoff.refused(self.ledger, pod, self.now)
        self.effects.append(WriteCondition(pod, reason, code, steered))

    def evict(self, effect: Evict) -> None:
        """Asks for an eviction or its dry run, which is then under way until it is answered."""
        (self.ledger.checking if effect.dry_run else self.ledger.evicting).add(effect.pod.uid)
        self.effects.append(effect)
