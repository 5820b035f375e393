"""The cluster that is audited: the room, who waits, and who of those that run may be moved, whatever policies say.

Whoever placed the pods, an audit asks what a plan could do. So every running pod moves that has somebody to replace it
and nothing that keeps it on its node (``immovable_reason``), up to a number of moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.cluster.running import immovable_reason
from flowcore.costs import CostModel
from flowcore.model.policies import (
    OBSERVED,
    DuringExecution,
    Policy,
    PreemptionMode,
    PreemptionPolicy,
    ReschedulingMode,
    ReschedulingReason,
)
from flowcore.model.running_pods import EvictionKind, RunningPod
from flowcore.planning.round import RoundResult, run_round
from flowcore.questions.scenario.plan import PreparedScenario, prepare_scenario
from flowcore.questions.scenario.scenario import GovernedScenario, Scenario

#: No pod has a lower priority.
_LOWEST_PRIORITY = -(2**31)
_REPLACES = "it replaces a running pod"


def _as_audited(most_moves: int) -> Callable[[Policy], Policy]:
    """What a policy counts as: pods move for waiting ones only, at once, and so many at most; nothing else evicts."""

    def changed(policy: Policy) -> Policy:
        rescheduling = msgspec.structs.replace(
            policy.rescheduling,
            mode=ReschedulingMode.ACT,
            reasons=(ReschedulingReason.WAITING_PODS,),
            min_age=0,
            per_round=most_moves,
            # A namespace has half of those of an hour.
            per_hour=2 * most_moves,
            per_node=most_moves,
            per_namespace=most_moves,
            per_owner=most_moves,
        )
        return msgspec.structs.replace(
            policy,
            rescheduling=rescheduling,
            preemption=PreemptionPolicy(PreemptionMode.NEVER),
            unscheduled=msgspec.structs.replace(policy.unscheduled, wait_for_cheaper_node=False),
            during_execution=DuringExecution.IGNORE,
            lasting_rules=(),
        )

    return changed


@dataclass(frozen=True)
class AuditedCluster:
    """A cluster, and what an audit may do to it.

    Attributes:
        most_moves: of a plan.
        models: cost models by name.
    """

    scenario: Scenario
    now: float
    most_moves: int
    models: Mapping[str, CostModel]

    @cached_property
    def prepared(self) -> PreparedScenario:
        """What a round reads where nobody is evicted for others.

        An operator that acts plans no pods that no policy governs; here they count like others.
        """
        scenario = self.scenario
        if scenario.complete:
            scenario = replace(scenario, policies={**scenario.policies, OBSERVED.name: OBSERVED})
        return prepare_scenario(scenario, self.now, _as_audited(self.most_moves))

    @cached_property
    def snapshot(self) -> Snapshot:
        """The cluster with the waiting pods that may be planned.

        Pods leave for others only by a move or by priority: none for a queue's share, none for its own replacement.
        """
        snapshot, running = self.prepared.snapshot, self.prepared.snapshot.running
        pending = tuple(pod for pod in snapshot.pending if pod.victim is None)
        if running is None or len(pending) < len(snapshot.pending):
            # Those that are to be replaced are among them, too.
            running = GovernedScenario(self.scenario, _as_audited(self.most_moves)).running_pods(self.now, ())
        pods = tuple(msgspec.structs.replace(pod, queue="") for pod in running.pods)
        return replace(snapshot, running=replace(running, pods=pods), pending=pending)

    @cached_property
    def skipped(self) -> dict[str, str]:
        """Keys of waiting pods that are not judged, and the reason."""
        replacing = {pod.key: _REPLACES for pod in self.prepared.snapshot.pending if pod.victim is not None}
        return self.prepared.skipped | replacing

    @property
    def waiting(self) -> tuple[PendingPod, ...]:
        """The pods that wait and may be planned."""
        return self.snapshot.pending

    @cached_property
    def running(self) -> tuple[RunningPod, ...]:
        """All pods that hold room on a known node and do not leave already."""
        return () if self.snapshot.running is None else self.snapshot.running.pods

    @cached_property
    def movable(self) -> tuple[RunningPod, ...]:
        """The pods that plans of a bound may move: more than a witness moves, which keeps budgets and gangs too."""
        cluster = self.scenario.cluster
        pods = cluster.pods
        return tuple(
            pod for pod in self.running if not (pods[pod.key].static or immovable_reason(cluster, pods[pod.key]))
        )

    @cached_property
    def keeping_plan(self) -> RoundResult:
        """The plan of all waiting pods in which everything that runs goes on running, here or elsewhere."""
        return self.plan(self.snapshot)

    @cached_property
    def evicting_plan(self) -> RoundResult:
        """The plan of all waiting pods in which pods of lower priority leave for them, too."""
        preemption = PreemptionPolicy(PreemptionMode.LOWER_PRIORITY)
        policies = {
            name: msgspec.structs.replace(policy, preemption=preemption)
            for name, policy in self.prepared.policies.items()
        }
        return self._within_moves(self.snapshot, policies)

    def plan(self, snapshot: Snapshot) -> RoundResult:
        """A plan of a snapshot in which nobody loses its place.

        So pods of any priority move for any others.
        """
        running = snapshot.running
        if running is not None:
            lowest = (
                msgspec.structs.replace(
                    pod, pod_class=msgspec.structs.replace(pod.pod_class, priority=_LOWEST_PRIORITY)
                )
                for pod in running.pods
            )
            snapshot = replace(snapshot, running=replace(running, pods=tuple(lowest)))
        return self._within_moves(snapshot, self.prepared.policies)

    def _within_moves(self, snapshot: Snapshot, policies: Mapping[str, Policy]) -> RoundResult:
        """A plan with no more moves than allowed: each policy has a limit of its own, so several share it."""
        result = run_round(snapshot, policies, self.models)
        moved = Counter(each.pod.policy for each in result.evictions if each.kind is EvictionKind.MIGRATION)
        if moved.total() <= self.most_moves:
            return result
        shared = {
            name: _with_moves(policy, self.most_moves * moved[name] // moved.total())
            for name, policy in policies.items()
        }
        return run_round(snapshot, shared, self.models)


def _with_moves(policy: Policy, most_moves: int) -> Policy:
    limits = msgspec.structs.replace(policy.rescheduling, per_round=most_moves)
    return msgspec.structs.replace(policy, rescheduling=limits)
