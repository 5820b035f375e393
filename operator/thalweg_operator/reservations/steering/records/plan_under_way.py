"""The pods that a plan is being made for: which pods without a plan must not get a place before them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from flowcore.model.constraint_limits import all_or_none, with_policy_constraints
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from flowcore.model.selectors import Labels
from thalweg_operator.reservations.steering.records.counted_pods import CountedPods


class PlanUnderWay:
    """The pods of a plan that is being made. They are looked at when it is first asked about them.

    Attributes:
        keeps_room: whether it keeps room for a gang.
    """

    def __init__(self, pods: Sequence[tuple[Pod, Policy]] = (), *, keeps_room: bool = False) -> None:
        """A plan that was asked for.

        Args:
            pods: that it is to place, each with its policy; none: it was carried out.
            keeps_room: see the class.
        """
        self._pods, self.keeps_room = pods, keeps_room
        self._counted = CountedPods()
        #: The highest priority of any pod, and of a pod that is placed with others or not at all; None: there is none.
        self._highest: int | None = None
        self._highest_in_groups: int | None = None

    def comes_before(self, pod: Pod, namespaces: Mapping[str, Labels], was_in_vain: Callable[[Pod], bool]) -> bool:
        """Whether the plan may lose a place by it that a pod gets one first.

        It loses none to a pod without rules of no lower priority that no rule of the plan speaks of, but for the last
        room on a node. That must not break a gang. A gang that no node was found for before loses nothing.

        Args:
            pod: a pod without rules of its own.
            namespaces: labels of the namespaces.
            was_in_vain: whether an earlier plan had no node for a pod.
        """
        if not self._counted.known:
            self._look(was_in_vain)
        priority = pod.pod_class.priority
        return (
            self.keeps_room
            or (self._highest is not None and self._highest > priority)
            or (self._highest_in_groups is not None and self._highest_in_groups >= priority)
            or self._counted.by_others(pod.signature, namespaces)
        )

    def _look(self, was_in_vain: Callable[[Pod], bool]) -> None:
        priorities = [pod.pod_class.priority for pod, _ in self._pods]
        in_groups = [
            pod.pod_class.priority
            for pod, policy in self._pods
            if (pod.gang is not None or all_or_none(pod.labels, policy)) and not was_in_vain(pod)
        ]
        self._highest, self._highest_in_groups = max(priorities, default=None), max(in_groups, default=None)
        self._counted.learn(
            (
                with_policy_constraints(pod.signature, policy)
                for pod, policy in self._pods
                if pod.constraints is not None or policy.constraints
            ),
            apart=True,
        )
