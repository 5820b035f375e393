"""The pods that a plan is being made for, or that the next one is for: no others may get a place before them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from flowcore.cluster.cluster import Cluster
from flowcore.model.constraint_limits import all_or_none
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from thalweg_operator.reservations.steering.records.counted_pods import CountedPods


class PlanUnderWay:
    """The pods of a plan that is being made, and those that came since. They are looked at when it is first asked.

    Attributes:
        keeps_room: whether it keeps room for a gang.
        helped: the number of steps that may have helped pods which no plan had a node for, when it was asked for.
        was_helped: whether there were such steps since the last plan that was made; it had no node for these pods.
        came: pods that came since the plan was asked for, each with its policy, by key. The next plan is for them.
    """

    def __init__(
        self,
        pods: Iterable[tuple[Pod, Policy]] = (),
        came: Iterable[tuple[Pod, Policy]] = (),
        *,
        keeps_room: bool = False,
        helped: int = 0,
        was_helped: bool = False,
    ) -> None:
        """A plan that was asked for.

        Args:
            pods: that it is to place, each with its policy.
            came, keeps_room, helped, was_helped: see the class.
        """
        self.keeps_room, self.helped, self.was_helped = keeps_room, helped, was_helped
        self.came = {pod.key: (pod, policy) for pod, policy in came}
        self._to_look_at = {pod.key: (pod, policy) for pod, policy in pods} | self.came
        #: Of each pod that was looked at its priority, and whether it comes before others of its priority.
        self._known: dict[str, tuple[int, bool]] = {}
        #: How many of them have each priority, and how many of these come before others of it.
        self._priorities: Counter[int] = Counter()
        self._first: Counter[int] = Counter()
        #: Of each pod with rules that was looked at its signature, and how many have each.
        self._ruled: dict[str, PodSignature] = {}
        self._signatures: Counter[PodSignature] = Counter()
        self._counted = CountedPods()

    def add(self, pod: Pod, policy: Policy) -> None:
        """A pod began to wait."""
        self.drop(pod.key)
        self.came[pod.key] = self._to_look_at[pod.key] = pod, policy

    def drop(self, key: str) -> None:
        """A pod waits for no plan any more."""
        self.came.pop(key, None)
        signature = self._ruled.pop(key, None)
        if signature is not None:
            self._signatures[signature] -= 1
            if not self._signatures[signature]:
                del self._signatures[signature]
                self._counted.unlearn(signature, apart=True)
        self._to_look_at.pop(key, None)
        priority, comes_first = self._known.pop(key, (None, False))
        if priority is not None:
            for counted in (self._priorities, self._first) if comes_first else (self._priorities,):
                counted[priority] -= 1
                if not counted[priority]:
                    del counted[priority]

    def comes_before(self, pod: Pod, policy: Policy, cluster: Cluster, was_in_vain: Callable[[Pod], bool]) -> bool:
        """Whether the plan, or the next one, may lose by it that a pod gets a place first.

        A pod of no lower priority that no rule of other pods of the plan speaks of takes the last room on a node, or
        the place of a pod like itself: that one is planned again, and a gang must not break by it. Who was planned in
        vain before loses nothing if nothing helped it since, and else comes first.

        Args:
            pod: a pod that comes by itself.
            policy: which governs it.
            was_in_vain: whether an earlier plan had no node for a pod.
        """
        self._look(cluster, was_in_vain)
        priority = pod.pod_class.priority
        return (
            self.keeps_room
            or max(self._priorities, default=priority) > priority
            or any(first >= priority for first in self._first)
            or self._counted.by_others(_ruled(pod, policy, cluster), cluster.namespaces)
        )

    def _look(self, cluster: Cluster, was_in_vain: Callable[[Pod], bool]) -> None:
        pods, self._to_look_at = self._to_look_at, {}
        for key, (pod, policy) in pods.items():
            priority = pod.pod_class.priority
            in_group = pod.gang is not None or all_or_none(pod.labels, policy)
            comes_first = self.was_helped if was_in_vain(pod) else in_group
            self._known[key] = priority, comes_first
            self._priorities[priority] += 1
            if comes_first:
                self._first[priority] += 1
            if pod.constraints is not None or policy.has_rules:
                self._ruled[key] = _ruled(pod, policy, cluster)
                self._signatures[self._ruled[key]] += 1
        self._counted.learn((self._ruled[key] for key in pods if key in self._ruled), apart=True)


def _ruled(pod: Pod, policy: Policy, cluster: Cluster) -> PodSignature:
    return cluster.policies.with_policy_rules(pod.signature, policy, cluster.services)
