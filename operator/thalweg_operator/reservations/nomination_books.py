"""What is remembered of nominations beside their reservations: pools, waves, permit groups, times and counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowcore.model.pods import PodClass
from thalweg_operator.reservations.permit_groups import PermitGroups
from thalweg_operator.reservations.swap_pool import SwapPool
from thalweg_operator.reservations.wave_queue import WaveQueue

#: Classes whose scores are kept, the newest.
_MAX_SCORES = 64


@dataclass(slots=True)
class NominationBooks:
    """See the module. Times are seconds of the monotonic clock.

    Attributes:
        reserved_pool: pods in phase RESERVED that may swap their nodes.
        queued_pool: pods in phase QUEUED that may swap their nodes.
        checks: when to look at a nomination that may be lost, by the key of the pod.
        unseen_wakes: when to wake a pod that was held before our watch showed it, by key.
        scores: what the last plan's costs say of nodes, by class and policy.
        started: cluster and policies are known.
        last_question: when kube-scheduler last asked about a pod that it is to bind.
        hit_rate: of reserved pods that kube-scheduler asked about, the share with a planned node in the sample.
        last_sweep: when all nominations were last looked at.
        plan_count: plans so far.
    """

    reserved_pool: SwapPool = field(default_factory=SwapPool)
    queued_pool: SwapPool = field(default_factory=SwapPool)
    waves: WaveQueue = field(default_factory=WaveQueue)
    permit_groups: PermitGroups = field(default_factory=PermitGroups)
    checks: dict[str, float] = field(default_factory=dict)
    unseen_wakes: dict[str, float] = field(default_factory=dict)
    scores: dict[tuple[PodClass, str], bytes] = field(default_factory=dict)
    started: bool = False
    last_question: float = 0.0
    hit_rate: float = 1.0
    last_sweep: float = 0.0
    plan_count: int = 0

    def is_withdrawing(self, atomic_group: str) -> bool:
        """Whether nominations of an atomic group are being withdrawn: until then its other pods are not planned."""
        return self.permit_groups.is_withdrawing(atomic_group)

    def put_scores(self, pod_class: PodClass, policy: str, scores: bytes) -> None:
        """Takes what the last plan's costs say of nodes, for pods of a class that a policy with ``Prefer`` governs."""
        self.scores.pop((pod_class, policy), None)
        self.scores[pod_class, policy] = scores
        if len(self.scores) > _MAX_SCORES:
            del self.scores[next(iter(self.scores))]

    def leave_pools(self, key: str) -> None:
        """A pod does not swap its node with another one any more."""
        self.reserved_pool.remove(key)
        self.queued_pool.remove(key)
