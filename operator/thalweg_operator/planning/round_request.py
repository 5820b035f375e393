"""Builds the request of a round: all changes since the last request, and the pods to plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from flowcore.cluster.changes import TakenChanges
from flowcore.model.backfill_history import BackfillHistory, BackfillRecord
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import Policy
from flowcore.planning.round_input import GovernedPod
from thalweg_operator.planning.deadline import RoundDeadline
from thalweg_operator.planning.inputs.device_takers import DeviceTakers
from thalweg_operator.planning.inputs.measured_usage import MeasuredUsageTracker
from thalweg_operator.planning.inputs.numa import NumaTracker
from thalweg_operator.planning.inputs.round_facts import PersistentUsageTracker, operator_round_input
from thalweg_operator.planning.inputs.running_pods import RunningPodsTracker
from thalweg_operator.planning.worker.messages import (
    RoundRequest,
    to_pending_entry,
    to_pod_changes,
    to_running_entry,
)
from thalweg_operator.policies.store import PolicyStore
from thalweg_operator.reservations.victims.state import VictimsState
from thalweg_operator.yielding import yielding

#: Changes that are no work by themselves: reports refer to the images, and loads are sent where pods wait or run.
_NO_WORK = frozenset({"images", "measured"})


@dataclass(frozen=True, slots=True)
class PlanningInput:
    """The state of cluster and policies that a request is built from.

    Attributes:
        generation: generation of the cluster.
        changes: changes of the cluster up to this generation, since the last request.
        policies: policies in order.
        uids: uids of the policy objects, by name.
    """

    generation: int
    changes: TakenChanges
    policies: Sequence[Policy]
    uids: Mapping[str, str]


class RequestBuilder:
    """Builds requests. It numbers them and keeps the state that one request needs of the one before.

    Attributes:
        backfill_records: backfill records of the last reply.
    """

    def __init__(
        self,
        state: VictimsState,
        policies: PolicyStore,
        budget: float,
        deadline: RoundDeadline,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        running_pods: RunningPodsTracker,
        measured_usage: MeasuredUsageTracker,
    ) -> None:
        """``clock``: seconds of a monotonic clock. ``wall_clock``: seconds since the epoch."""
        self._running_pods, self._measured_usage = running_pods, measured_usage
        self._state, self._policies = state, policies
        self._cluster, self._ledger = cluster, ledger = state.cluster, state.ledger
        self._budget, self._deadline, self._clock, self._wall_clock = budget, deadline, clock, wall_clock
        self._persistent_usage = PersistentUsageTracker(clock)
        self._numa = NumaTracker(cluster, ledger)
        self._device_takers = DeviceTakers(cluster, ledger)
        self.backfill_records: tuple[BackfillRecord, ...] = ()
        self._number = 0

    def planning_input(self) -> PlanningInput:
        """Takes the changes up to now. Changes during ``build`` count as newer than the plan."""
        cluster = self._cluster
        generation, changes = cluster.generation, cluster.take_changes()
        self._ledger.begin_plan()
        return PlanningInput(generation, changes, cluster.policies.ordered, self._policies.uids)

    async def build(
        self, planning_input: PlanningInput, pods: Sequence[tuple[Pod, int]], *, reset: bool = False
    ) -> RoundRequest:
        """Builds a request.

        Args:
            planning_input: the changes to send.
            pods: pods to plan, each with the index of its policy.
            reset: whether the worker has no state.
        """
        self._number += 1
        changes = planning_input.changes.changes
        # Usage that changes during these steps is sent in its newest state, and again with the next request.
        async for _ in yielding(planning_input.changes.steps()):
            pass
        classes: dict[PodClass, int] = {}
        signatures: dict[PodSignature, int] = {}
        pod_changes = [entry async for entry in yielding(to_pod_changes(changes, signatures))]
        changes.pod_deltas = []
        policies, now = planning_input.policies, self._wall_clock()
        governed = [GovernedPod(pod, policies[place], policies[place].delivery) async for pod, place in yielding(pods)]
        stays_above = await self._persistent_usage.due(governed, now, fresh=reset)
        round_input = operator_round_input(
            self._state, governed, self._clock(), now, self._measured_usage.foreseen, stays_above
        )
        async for _ in yielding(round_input.steps()):
            pass
        places = {policy.name: place for place, policy in enumerate(policies)}
        pending = [
            to_pending_entry(pod, places[pod.policy], classes, signatures)
            async for pod in yielding(round_input.pending)
        ]
        running_changes = await self._running_pods.update(changes.namespaces, fresh=reset)
        running = [to_running_entry(pod, classes, signatures) async for pod in yielding(running_changes.put)]
        plans = bool(pods) or running_changes.state is not None
        changes.measured = await self._measured_usage.changes(
            changes.nodes, changes.removed_nodes, self._wall_clock(), planned=plans, fresh=reset
        )
        changes.numa, changes.removed_numa = self._numa.update(self._wall_clock(), fresh=reset)
        changes.takers = self._device_takers.update({pod.key for pod, _ in pods}, fresh=reset)
        queues = round_input.queues
        namespaces = {pod.namespace for pod, _ in pods}
        return RoundRequest(
            number=self._number,
            generation=planning_input.generation,
            now=self._wall_clock(),
            reset=reset,
            changes=changes,
            policies=list(planning_input.policies),
            classes=list(classes),
            signatures=list(signatures),
            pod_changes=pod_changes,
            pending=pending,
            budget=self._budget,
            gangs=round_input.gangs,
            persistent_usage=round_input.persistent_usage,
            backfill_history=BackfillHistory(self._clock(), self.backfill_records),
            queues=[] if queues is None else list(queues.queues),
            queue_usage={} if queues is None else dict(queues.usage),
            running=running,
            removed_running=running_changes.removed,
            running_state=running_changes.state,
            deadline=0.0 if reset else self._deadline.seconds_for(len(pods), len(classes), namespaces),
        )


def has_changes(request: RoundRequest) -> bool:
    """Whether a request has changes of the cluster, queues, whose shares the reply tells, or running pods.

    Running pods change, and some may have to leave by themselves as time passes.
    """
    changes = request.changes
    changed = any(getattr(changes, name) for name in changes.__struct_fields__ if name not in _NO_WORK)
    changed = changed or changes.takers is not None  # there may be none any more
    return changed or bool(request.pod_changes or request.queues or request.running_state)
