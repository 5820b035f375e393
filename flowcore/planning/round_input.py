"""The input of a round beside the nodes: the waiting pods as it plans them, their gangs, and the sums over other pods.

An operator, ``plan``, ``why --nodes`` and the demo make it here, so that they plan the same pods alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from flowcore.cluster.arrays.snapshot import PendingPod, Victim
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.indexes.round_gangs import RoundGangs
from flowcore.cluster.pods_to_come import ComingPods
from flowcore.cluster.usage_samples import PodOnNode, UsageStore
from flowcore.model.cost_policy import Utilisation
from flowcore.model.gang_spec import GangKey, GangSource
from flowcore.model.gangs import Gang
from flowcore.model.persistent_usage import PersistentUsage, PersistentUsageSums
from flowcore.model.pods import Pod, excluding_nodes, with_wish
from flowcore.model.policies import Delivery, PodsToComeMode, Policy
from flowcore.model.queues import QueueState, QueueUsage
from flowcore.model.resources import PODS, Amounts, capped, non_zero_requests

#: Lower than any pod's priority.
LOWEST_PRIORITY = -(2**31)
#: Pods that are only asked for their gangs, with each step.
_PODS_PER_STEP = 8


class GovernedPod(NamedTuple):
    """A waiting pod, the policy that governs it, and how it would reach its node."""

    pod: Pod
    policy: Policy
    delivery: Delivery


class PodFacts(Protocol):
    """What is known of a waiting pod beside its object and its policy. An operator knows more than a dump tells."""

    def rejected_nodes(self, pod: Pod) -> Iterable[str]:
        """Nodes that the pod is not to be planned for now."""

    def victim_of(self, pod: Pod, policy: Policy) -> Victim | None:
        """The running pod whose place it is to take; None: it is placed like any other."""

    def plannable_since(self, pod: Pod) -> float:
        """When the pod could first be planned, in seconds since the epoch; 0: unknown."""

    def preempts(self, pod: Pod) -> bool:
        """Whether running pods may be evicted for it."""

    def foreseen(self, pod: Pod) -> tuple[int, int] | None:
        """Milli-cores and bytes of memory that the pod is expected to use; None: unknown."""


def counts_measured(policy: Policy) -> bool:
    """Whether measured load counts for the pods of a policy."""
    return policy.cost.utilisation is not Utilisation.REQUESTED


def pod_on_node(store: UsageStore, pod: Pod, since: float) -> PodOnNode:
    """A pod on a node with what it will use: what is foreseen, or else its requests.

    Args:
        since: when it started there, in seconds since the epoch; 0: it is on its way.
    """
    requested = non_zero_requests(pod.usage, pod.pod_class.unrequested)
    return PodOnNode(pod.key, since, store.foreseen(pod.usage_class) or requested)


def pending_pod(pod: Pod, policy: Policy, facts: PodFacts, cluster: Cluster, gangs: tuple[str, ...] = ()) -> PendingPod:
    """A waiting pod as a round plans it.

    Args:
        policy: that governs it.
        gangs: names of its gangs.
    """
    pod_class = with_wish(excluding_nodes(pod.pod_class, facts.rejected_nodes(pod)), pod.nominated_node)
    if pod.grows:  # it has its slot, and counts for its queue
        pod_class = msgspec.structs.replace(pod_class, requests=(*pod.grows, (PODS, 0)))
    return PendingPod(
        key=pod.key,
        uid=pod.uid,
        pod_class=pod_class,
        policy=policy.name,
        created=pod.created,
        signature=pod.signature,
        gangs=gangs,
        victim=facts.victim_of(pod, policy),
        plannable_since=facts.plannable_since(pod),
        preempts=facts.preempts(pod),
        queue="" if pod.grows else cluster.queues.of(pod, cluster.namespaces),
        foreseen=facts.foreseen(pod) if counts_measured(policy) else None,
        waits_for_leavers=pod.preempts and not facts.preempts(pod),
    )


@dataclass(frozen=True, slots=True)
class OnTheWay:
    """Pods that are neither waiting to be planned nor bound.

    Attributes:
        gang_pods: keys of gangs' pods on their way to a node, and that node.
        paused: keys of pods that are not planned for a while, since a write for them was refused.
        reserved: gives the pods with a reservation, whose room counts for their queues, and those that leave first.
    """

    gang_pods: Mapping[str, str] = field(default_factory=dict)
    paused: Collection[str] = ()
    reserved: Callable[[], Iterable[tuple[Pod, Sequence[Pod]]]] = tuple


class RoundInput:
    """Collects the input of one round, in steps. All attributes are complete after the last step.

    Attributes:
        pending: the pods to plan, in the given order.
        gangs: all their gangs, sorted by name.
        persistent_usage: usage that does not come free for gangs; None: it was not asked for.
        queues: accepted queues and what their pods hold; None: there are none.
    """

    def __init__(
        self,
        cluster: Cluster,
        waiting: Sequence[GovernedPod],
        facts: PodFacts,
        policy_of: Callable[[Pod], Policy | None],
        *,
        unplanned: Collection[str] = (),
        on_the_way: OnTheWay | None = None,
        stays_above: int | None = LOWEST_PRIORITY,
        now: float = 0.0,
    ) -> None:
        """For one round.

        Args:
            waiting: the pods that may be planned.
            policy_of: the policy that governs a pod of the cluster; None: none does.
            unplanned: keys of those of ``waiting`` that count for their gangs, but are not planned.
            on_the_way: None: all pods wait or are bound.
            stays_above: what pods of higher priority hold does not come free for gangs; None: no gang asks.
            now: seconds since the epoch; 0: unknown.
        """
        self._cluster, self._waiting, self._facts, self._policy_of = cluster, waiting, facts, policy_of
        self._unplanned, self._stays_above, self._now = unplanned, stays_above, now
        self._on_the_way = OnTheWay() if on_the_way is None else on_the_way
        #: Gangs of controllers that ask for room of pods to come, by name; and since when such gangs of each namespace
        #: have run whose pods to come count for them.
        self._asking: dict[str, GangKey] = {}
        self._since: dict[str, float] = {}
        self.pending: list[PendingPod] = []
        self.gangs: list[Gang] = []
        self.persistent_usage: tuple[PersistentUsage, ...] | None = None
        self.queues: QueueState | None = None

    def complete(self) -> RoundInput:
        """All steps at once."""
        for _ in self.steps():
            pass
        return self

    def steps(self) -> Iterator[None]:
        """Makes the input, a few pods or a gang with each step, so that an event loop can turn between two of them."""
        yield from self._plan_gangs_and_pods()
        yield from self._add_persistent_usage()
        yield from self._add_queues()

    def _plan_gangs_and_pods(self) -> Iterator[None]:
        cluster, asked = self._cluster, list[tuple[Pod, Delivery]]()
        for first in range(0, len(self._waiting), _PODS_PER_STEP):
            some = self._waiting[first : first + _PODS_PER_STEP]
            asked += [(pod, delivery) for pod, _, delivery in some]
            self._note_pods_to_come(some)
            yield
        way = self._on_the_way
        gangs = RoundGangs(cluster.gangs, asked, way.gang_pods, cluster.domain, way.paused)
        yield from gangs.steps()
        self.gangs = gangs.gangs
        yield from self._add_pods_to_come()
        for (pod, policy, _), names in zip(self._waiting, gangs.gang_names, strict=True):
            if pod.key not in self._unplanned:
                self.pending.append(pending_pod(pod, policy, self._facts, cluster, names))
            yield

    def _note_pods_to_come(self, waiting: Iterable[GovernedPod]) -> None:
        """Notes gangs whose policy asks for room of the pods that their controllers make once they run."""
        for pod, policy, _ in waiting:
            if policy.gangs.pods_to_come is PodsToComeMode.IGNORE or pod.gang is None:
                continue
            key, since = pod.gang.key, self._now - policy.gangs.hold_room_for
            if key.source is GangSource.CONTROLLER:
                self._asking[key.display_name] = key
                self._since[key.namespace] = min(since, self._since.get(key.namespace, since))

    def _add_pods_to_come(self) -> Iterator[None]:
        """Adds to these gangs the pods that come."""
        coming: dict[str, ComingPods] = {}
        for namespace, start in self._since.items():
            coming[namespace] = ComingPods(self._cluster, namespace, self._on_the_way.gang_pods, start)
            yield from coming[namespace].steps()
        for place, gang in enumerate(self.gangs):
            key = self._asking.get(gang.name)
            if key is not None and gang.min_placed > 0:
                to_come = coming[key.namespace].after(key)
                self.gangs[place] = msgspec.structs.replace(gang, to_come=to_come)
                yield

    def _add_persistent_usage(self) -> Iterator[None]:
        if self._stays_above is None:
            return
        sums = PersistentUsageSums(self._stays_above)
        for pod in list(self._cluster.pods.values()):
            if pod.node_name:
                sums.add(pod, self._policy_of(pod))
            yield
        self.persistent_usage = sums.totals()

    def _add_queues(self) -> Iterator[None]:
        cluster = self._cluster
        if not cluster.queues.tree.queues:
            return
        sums = _QueueUsageSums(cluster)
        # Both are taken now: a pod that is bound meanwhile counts once.
        pods, reserved = list(cluster.pods.values()), self._on_the_way.reserved()
        for pod, leave_first in reserved:
            sums.add_coming(pod, leave_first)
        for pod in pods:
            sums.add_pod(pod)
            yield
        self.queues = cluster.queues.tree.state(sums.totals())


class _QueueUsageSums:
    """Sums over pods with room, by queue."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._used: dict[str, Counter[str]] = {}
        self._leaving: dict[str, Counter[str]] = {}
        self._twice: dict[str, Counter[str]] = {}
        #: What a pod that leaves still has for others that come, by its key and the queue that it counts for.
        self._rest: dict[tuple[str, str], Counter[str]] = {}

    def add_pod(self, pod: Pod) -> None:
        """Adds a pod of the cluster, if it holds room on a known node."""
        if self._has_usage(pod):
            self._add(pod, pod.usage, leaving=pod.deleting or pod.key in self._cluster.leaving)

    def add_coming(self, pod: Pod, leave_first: Iterable[Pod]) -> None:
        """Adds the room that is reserved for a pod; what those leave that go first counts with it, once."""
        self._add(pod, pod.pod_class.requests)
        coming = {name: Counter(dict((*pod.pod_class.requests, (PODS, 1)))) for name in self._path(pod)}
        for leaver in filter(self._has_usage, leave_first if coming else ()):
            for name in coming.keys() & self._path(leaver):
                rest = self._rest.setdefault((leaver.key, name), Counter(dict((*leaver.usage, (PODS, 1)))))
                both = coming[name] & rest
                coming[name] -= both
                rest -= both
                self._twice.setdefault(name, Counter()).update(both)

    def _has_usage(self, pod: Pod) -> bool:
        return pod.node_name in self._cluster.nodes and not pod.terminal

    def _path(self, pod: Pod) -> tuple[str, ...]:
        """The queues that a pod counts for."""
        name = self._cluster.queues.of(pod, self._cluster.namespaces)
        return self._cluster.queues.tree.path(name) if name else ()

    def _add(self, pod: Pod, usage: Amounts, *, leaving: bool = False) -> None:
        name = self._cluster.queues.of(pod, self._cluster.namespaces)
        if name:
            for sums in (self._used, self._leaving) if leaving else (self._used,):
                total = sums.setdefault(name, Counter())
                total[PODS] += 1
                for resource, amount in usage:
                    total[resource] += amount

    def totals(self) -> dict[str, QueueUsage]:
        """The sums by name of queue."""
        sums = (self._used, self._leaving, self._twice)
        return {
            name: QueueUsage(*(capped(sorted(of_queue.get(name, Counter()).items())) for of_queue in sums))
            for name in sorted(self._used.keys() | self._twice.keys())
        }
