"""Sends running pods to the worker, in rounds that may evict some: first all of them, then what changed.

A round without such pods costs nothing here. One with them looks at every pod, most of which are as they were sent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from flowcore.cluster.cluster import Cluster
from flowcore.cluster.running import (
    budgets_left,
    composite_reason,
    gang_disruption,
    held_room,
    is_running,
    is_terminating,
    to_running_pod,
)
from flowcore.model.pods import Pod
from flowcore.model.policies import DuringExecution, Policy, PreemptionMode, ReschedulingMode
from flowcore.model.running_pods import RunningPod
from flowcore.rules.reasons.codes import UNRESOLVABLE
from thalweg_operator.planning.worker.messages import RoundReply, RoundRequest, RunningState
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.victims.replacements import place_key, places_of_replacements, recent_moves
from thalweg_operator.reservations.victims.state import VictimsState
from thalweg_operator.yielding import yielding

#: Seconds for which running pods are sent on after they were needed: more urgent pods may come.
_NEEDED_SECONDS = 60.0


@dataclass(slots=True)
class RunningChanges:
    """Changes of the running pods since the last request."""

    put: list[RunningPod] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    state: RunningState | None = None


@dataclass(frozen=True, slots=True)
class _Read:
    """What running pods are read with."""

    reasons: Mapping[str, str]
    now: float


class RunningPodsTracker:
    """Collects the running pods that the worker does not know yet."""

    def __init__(
        self,
        state: VictimsState,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        budgets_known: Callable[[], bool],
    ) -> None:
        """``budgets_known``: whether PodDisruptionBudgets are watched now. While they are not, no pod is evicted."""
        self._state, self._cluster, self._ledger = state, state.cluster, state.ledger
        self._clock, self._wall_clock = clock, wall_clock
        self._budgets_known = budgets_known
        self._needed_until = float("-inf")
        self._sent: dict[str, tuple[Pod, RunningPod]] = {}
        #: Sent pods that may read otherwise though they do not change: too young to move, or refused to leave.
        self._passing: set[str] = set()
        self._policies: tuple[Policy, ...] = ()
        self._queues: object = None
        #: By node, the annotation that keeps its pods there.
        self._keeping: dict[str, str] = {}
        #: Whether any of the sent pods may read otherwise: namespaces changed while nothing was sent.
        self._stale = False

    def need(self) -> bool:
        """Has running pods sent for some time. Returns whether the last request had none and the next one will."""
        was_needed = self._is_needed()
        self._needed_until = self._clock() + _NEEDED_SECONDS
        return not was_needed and self._budgets_known()

    def _is_needed(self) -> bool:
        if self._clock() < self._needed_until or self._cluster.watched_pods:
            return True
        return any(
            policy.rescheduling.mode is not ReschedulingMode.OFF
            or policy.during_execution is not DuringExecution.IGNORE
            for policy in self._cluster.policies.ordered
        )

    async def update(self, changed_namespaces: Collection[str], *, fresh: bool) -> RunningChanges:
        """What the worker needs for the next round.

        Args:
            changed_namespaces: those whose labels changed since the last request.
            fresh: whether the worker has no state.
        """
        cluster, changes = self._cluster, RunningChanges()
        if fresh:
            self._sent, self._passing = {}, set()
        # Other policies may govern the pods of a namespace with other labels, and other budgets may protect them.
        namespaces = {*changed_namespaces, *cluster.budgets.take_changed_namespaces()}
        if not (self._is_needed() and self._budgets_known()):
            self._stale |= bool(namespaces)
            return changes
        policies, tree = tuple(cluster.policies.ordered), cluster.queues.tree
        keeping = {node.name: kept for node in cluster.nodes.values() if (kept := node.report.keeps_pods)}
        anew = self._stale or (policies, tree, keeping) != (self._policies, self._queues, self._keeping)
        self._policies, self._queues, self._keeping, self._stale = policies, tree, keeping, False
        read = _Read(self._state.unevictable_reasons(self._clock()), self._wall_clock())
        leaving: set[str] = set()
        async for pod in yielding(list(cluster.pods.values())):
            key = pod.key
            sent = self._sent.get(key)
            if not self._may_leave(key):
                leaving.add(key)
                continue
            anew_here = anew or pod.namespace in namespaces or key in self._passing or pod.uid in read.reasons
            # Its PodGroup may have come, or gone, since.
            anew_here = anew_here or bool(composite_reason(cluster, pod))
            if sent is not None and sent[0] is pod and not anew_here:
                continue
            running = self._to_running_pod(pod, read)
            self._sent[key] = (pod, running)
            if sent is None or sent[1] != running:
                changes.put.append(running)
        changes.removed = [key for key in self._sent if not self._may_leave(key)]
        for key in changes.removed:
            del self._sent[key]
            self._passing.discard(key)
        # Some may have gone while this ran.
        changes.put = [running for running in changes.put if running.key in self._sent]
        gangs = {running.gang: pod.gang.key for pod, running in self._sent.values() if pod.gang is not None}
        changed = leaving.union(changes.removed)
        leaves = self._leaving(changed)
        known = [cluster.pods[key] for key in changed if key in cluster.pods]
        terminating = [pod for pod in known if is_terminating(cluster, pod)]
        changes.state = RunningState(
            budgets_left(cluster, leaves),
            {name: gang_disruption(cluster, key, leaves) for name, key in gangs.items()},
            recent_moves(self._state, self._clock()),
            tuple(map(held_room, (*leaves, *terminating))),
            tuple(sorted(places_of_replacements(self._state))),
        )
        return changes

    def _leaving(self, keys: Collection[str]) -> list[Pod]:
        """The pods, of some, that run and that are about to leave."""
        pods = [self._cluster.pods[key] for key in keys if key in self._cluster.pods]
        return [pod for pod in pods if is_running(self._cluster, pod) and not self._may_leave(pod.key)]

    def _may_leave(self, key: str) -> bool:
        """Whether there is a pod of this name that runs and does not leave already."""
        ledger = self._ledger
        pod = self._cluster.pods.get(key)
        return (
            pod is not None
            and is_running(self._cluster, pod)
            and key not in ledger.victims
            and key not in self._state.moves.without_place
            and place_key(pod) not in ledger.reservations
            and pod.uid not in self._state.evicting
        )

    def _to_running_pod(self, pod: Pod, read: _Read) -> RunningPod:
        cluster = self._cluster
        policy = cluster.policies.of(pod, cluster.namespaces)
        reason = read.reasons.get(pod.uid, "")
        running = to_running_pod(cluster, pod, policy, read.now, reason)
        moves = policy is not None and policy.rescheduling.mode is not ReschedulingMode.OFF
        passes = reason or composite_reason(cluster, pod) or (moves and running.immovable_reason)
        (self._passing.add if passes else self._passing.discard)(pod.key)
        return running


def preempting(cluster: Cluster, request: RoundRequest, reply: RoundReply) -> set[int]:
    """Pods that a round left, and that others could make room for: of lower priority, or of a queue above its share.

    Returns:
        Their positions in ``request.pending``.
    """
    lowest = min(cluster.bound_priorities, default=None)
    positions: set[int] = set()
    if lowest is None:
        return positions
    for index, reason in reply.unplaced:
        entry = request.pending[index]
        policy = request.policies[entry.policy]
        if (
            entry.preempts
            and policy.preemption.mode is PreemptionMode.LOWER_PRIORITY
            and delivery_of(policy).owner is not None
            and (request.classes[entry.pod_class].priority > lowest or entry.queue)
            and reply.codes[reason] not in UNRESOLVABLE
        ):
            positions.add(index)
    return positions
