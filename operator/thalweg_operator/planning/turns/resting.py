"""Pods that a round had no node for rest until something may help them: no round plans them meanwhile.

A plan leaves no pod that a node has room for, and where other pods go only takes room away. So to plan such a pod again
beside each new pod finds nothing, and costs as much as the first time.

Pure: the caller says which pods may rest, and what may have helped them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass

from flowcore.cluster.cluster import as_planned
from flowcore.model.pods import Pod


@dataclass(frozen=True, slots=True)
class _InVain:
    """A pod as a round had no node for it, and when that round began."""

    pod: Pod
    since: float


class UnhelpedPods:
    """Which pods rest. Call ``choose`` for each round, then ``planned_in_vain`` if it ended with a plan."""

    def __init__(self, group_of: Callable[[Pod], Hashable]) -> None:
        """``group_of``: equal for pods of gangs that are placed together or not at all."""
        self._group_of = group_of
        #: By uid. Only pods that every round since could have planned: what helped meanwhile is known of no others.
        self._in_vain: dict[str, _InVain] = {}
        self._changes, self._began = -1, 0.0

    def choose(
        self,
        pods: Sequence[Pod],
        changes: int,
        now: float,
        helped: Callable[[Pod, float], bool],
        always: Collection[str] = frozenset(),
    ) -> tuple[Sequence[Pod], Sequence[Pod]]:
        """The pods that the next round may plan, and those that rest, both in the given order.

        Args:
            pods: pods that may be planned.
            changes: rises with each change that may give any pod a node.
            now: seconds of any clock that ``helped`` knows.
            helped: whether something else may give a pod a node that was planned in vain at a time.
            always: uids of pods that the round has to plan.
        """
        known = self._in_vain if changes == self._changes else {}
        self._changes, self._began, self._in_vain = changes, now, {}
        if not known:
            return pods, ()

        def rests(pod: Pod) -> bool:
            before = known.get(pod.uid)
            return (
                before is not None
                and pod.uid not in always
                and (before.pod is pod or as_planned(before.pod) == as_planned(pod))
                and not helped(pod, before.since)
            )

        # A gang is never divided: one pod of it that may be placed now needs the others.
        groups = [pod.uid if pod.gang is None else self._group_of(pod) for pod in pods]
        awake = {group for pod, group in zip(pods, groups, strict=True) if not rests(pod)}
        resting = [pod for pod, group in zip(pods, groups, strict=True) if group not in awake]
        self._in_vain = {pod.uid: _InVain(pod, known[pod.uid].since) for pod in resting}
        return [pod for pod, group in zip(pods, groups, strict=True) if group in awake], resting

    def planned_in_vain(self, pods: Iterable[Pod]) -> None:
        """The round that was chosen last had no node for these pods, and nothing but a change will give them one."""
        self._in_vain.update((pod.uid, _InVain(pod, self._began)) for pod in pods)
