"""Which residents may leave for a waiting pod: by preemption, by being taken back, by a move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, PendingPod
from flowcore.model.policies import Policy, PreemptionMode
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.plan_key import Loss, PlanKey
from flowcore.planning.problem.placements.plans import Plan

#: The least important evictions of a node that are each tried as the first that a budget lets go.
_MOST_FIRST = 12


@dataclass(frozen=True, slots=True)
class PossibleEviction:
    """Residents that leave together, as a node or a limit of a queue sees them: one alone, or a whole gang.

    Attributes:
        members: all of them, wherever they are.
        here: those on the node, or that count for the limit.
        is_gang: whether it is a whole gang.
    """

    members: tuple[int, ...]
    here: tuple[int, ...]
    is_gang: bool = False


def may_preempt(pod: PendingPod, policy: Policy, now: float) -> bool:
    """Whether running pods may be evicted for a waiting pod at all."""
    preemption = policy.preemption
    return (
        pod.preempts
        and preemption.mode is PreemptionMode.LOWER_PRIORITY
        and pod.victim is None
        and now - (pod.waiting_since or now) >= preemption.after
    )


def highest_preempting(pods: Iterable[PendingPod], policies: Mapping[str, Policy], now: float) -> int:
    """The highest priority of a pod for which running pods may be evicted; below all priorities: there is none."""
    highest = -(2**31)
    for pod in pods:
        if pod.pod_class.priority > highest and may_preempt(pod, policies[pod.policy], now):
            highest = pod.pod_class.priority
    return highest


class Eligibility:
    """Who may be preempted: strictly lower priority, budgets and gangs kept.

    Attributes:
        kind: why they leave.
        most_nodes: so many of the most promising nodes are looked at for a pod; 0: as far as one may be better.
    """

    kind = EvictionKind.PREEMPTION
    most_nodes = 0

    def __init__(self, state: Plan) -> None:
        self._state, self._residents = state, state.residents

    def begin(self, pod: PendingPod) -> bool:  # noqa: ARG002 - priorities are all that counts
        """Turns to a waiting pod. Whether anybody may leave for it."""
        return True

    def mask(self, priority: int) -> Bools:
        """bool[V]: ``may_leave`` of all residents."""
        residents = self._residents
        evictable: Bools = residents.evictable & (residents.priorities < priority)
        evictable[list(self._state.leaving)] = False
        return evictable

    def may_leave(self, resident: int, priority: int) -> bool:
        """Whether a resident may leave for a pod of a priority, but for budgets and gangs."""
        residents = self._residents
        return (
            bool(residents.priorities[resident] < priority)
            and bool(residents.evictable[resident])
            and resident not in self._state.leaving
        )

    def evictions(self, here: Sequence[int], priority: int) -> list[list[PossibleEviction]]:
        """Sets of evictions of some residents, such as a node's; any of one set may leave together.

        There are several where a PodDisruptionBudget or a gang lets some of its pods go and not all: the most important
        ones (whom kube-scheduler counts first), the least important ones, the largest ones, each one with the least
        important others.

        Args:
            here: the residents, the most important first; each set has that order, too.
        """
        possible = self._possible(here, priority)
        choices = [self._within_limits(possible, range(len(possible)))]
        backwards = range(len(possible))[::-1]
        reverse = self._within_limits(possible, backwards)
        if reverse != choices[0]:
            choices += [reverse, self._within_limits(possible, self._largest_first(possible))]
            # Rules may need one of them gone: each may be the first that a budget lets go.
            for first in range(len(possible))[-_MOST_FIRST:]:
                choice = self._within_limits(possible, [first, *backwards])
                if choice not in choices:
                    choices.append(choice)
        return [choice for choice in choices if choice]

    def _possible(self, among: Sequence[int], priority: int) -> list[PossibleEviction]:
        """All evictions of some residents, but for budgets, the most important first.

        A pod leaves alone if its gang can spare one, and a gang as a whole if it can spare fewer than it has here.
        Source: kube-scheduler framework/preemption MoreImportantVictim.
        """
        residents, pods = self._residents, self._residents.pods
        here = [resident for resident in among if self.may_leave(resident, priority)]
        possible, gangs = list[PossibleEviction](), list[str]()
        for resident in here:
            gang = pods[resident].gang
            if gang:
                gangs.append(gang)
            if not gang or self.surplus(gang) > 0:
                possible.append(PossibleEviction((resident,), (resident,)))
        inside = set(among) if gangs else set[int]()
        for gang in dict.fromkeys(gangs):
            members = tuple(member for member in residents.by_gang[gang] if member not in self._state.leaving)
            those = tuple(member for member in members if member in inside)
            if self.surplus(gang) < len(those) and all(self.may_leave(member, priority) for member in members):
                possible.append(PossibleEviction(members, those, is_gang=True))
        if gangs:
            priorities = residents.priorities
            possible.sort(
                key=lambda each: (-int(priorities[list(each.members)].max()), not each.is_gang, -len(each.members))
            )
        return possible

    def _largest_first(self, possible: Sequence[PossibleEviction]) -> list[int]:
        usage = np.array([self._residents.usage[list(each.here)].sum(axis=0) for each in possible])
        shares = (usage / np.maximum(usage.max(axis=0), 1)).sum(axis=1)
        numbers: list[int] = np.argsort(-shares, kind="stable").tolist()
        return numbers

    def _within_limits(self, possible: Sequence[PossibleEviction], order: Iterable[int]) -> list[PossibleEviction]:
        """The evictions that budgets and gangs allow together, tried in an order; the most important first."""
        pods, budgets = self._residents.pods, self._state.budgets
        chosen, gone = set[int](), set[int]()
        lost, alone = Counter[str](), Counter[str]()
        for number in order:
            members = possible[number].members
            gang = "" if possible[number].is_gang else pods[members[0]].gang
            if number in chosen or (gang and alone[gang] >= self.surplus(gang)):
                continue
            more = [member for member in members if member not in gone]
            needed = [budget for member in more for budget in pods[member].budgets]
            if needed and any(lost[name] + count > budgets[name] for name, count in Counter(needed).items()):
                continue
            chosen.add(number)
            gone.update(more)
            lost.update(needed)
            alone[gang] += 1
        return [each for number, each in enumerate(possible) if number in chosen]

    def may_all_leave(self, members: Sequence[int], priority: int) -> bool:
        """Whether residents that were chosen before may still leave together."""
        needed = Counter(budget for member in members for budget in self._residents.pods[member].budgets)
        within_budgets = all(self._state.budgets[name] >= count for name, count in needed.items())
        return within_budgets and all(self.may_leave(member, priority) for member in members)

    def rank(self, loss: Loss) -> PlanKey:
        """What sets of different nodes are compared by."""
        return PlanKey(victims=loss)

    def decide(self, members: Sequence[int], pods: Sequence[PendingPod], demand: int, node: int) -> bool:
        """Some leave, and pods of a demand come to a node in their place. Returns whether they do."""
        for member in members:
            self._state.let_leave(member, self.kind, [pod.key for pod in pods])
        for pod in pods:
            self._state.arrive(pod, demand, node)
        return True

    def limits_of(self, resident: int) -> dict[str, int]:
        """How many more may leave that count for what a resident counts for: its budgets, what its gang can spare."""
        state, pod = self._state, self._residents.pods[resident]
        limits = {f"budget {name}": state.budgets[name] for name in pod.budgets}
        if pod.gang:
            limits[f"gang {pod.gang}"] = self.surplus(pod.gang)
        return limits

    def surplus(self, name: str) -> int:
        """How many pods of a gang may leave and the rest still be of use."""
        gang = self._residents.running.gangs.get(name)
        if gang is None or gang.whole:
            return 0
        return gang.running - self._state.leaving_by_gang[name] - gang.min_member
