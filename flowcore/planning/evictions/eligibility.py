"""Which residents may leave for a waiting pod: by preemption, by being taken back, by a move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, PendingPod
from flowcore.model.policies import Policy, PreemptionMode, ReschedulingMode, ReschedulingReason
from flowcore.model.running_pods import EvictionKind, RecentMove, RunningPod
from flowcore.planning.problem.placements.decisions import share_key
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
    """Who may be preempted: strictly lower priority, budgets and gangs kept."""

    kind = EvictionKind.PREEMPTION

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


class MoveEligibility:
    """Who may be moved: what policies let go, within their limits."""

    kind = EvictionKind.MIGRATION

    def __init__(self, state: Plan, policies: Mapping[str, Policy], modes: Sequence[ReschedulingMode]) -> None:
        self._state, self._residents, self._policies, self._modes = state, state.residents, policies, modes
        self._recent: dict[tuple[str, str], int] = {}
        #: ``_is_open`` by policy and namespace, and the changes of the state before that.
        self._open: dict[tuple[str, str], bool] = {}
        self._open_after = 0
        #: Moves of the last hour by policy, and by policy and namespace.
        self._last_hour: Counter[str | tuple[str, str]] = Counter()
        for move in state.residents.running.moves:
            self._count(move)

    def _count(self, move: RecentMove) -> None:
        self._last_hour.update((move.policy, (move.policy, move.namespace)))
        if move.under_way:
            for key in (("node", move.node), ("namespace", move.namespace), ("owner", move.owner)):
                self._recent[key] = self._recent.get(key, 0) + 1

    @cached_property
    def _movable(self) -> Bools:
        """bool[V]: residents that may be moved for waiting pods."""
        return self._may_ever_move(ReschedulingReason.WAITING_PODS)

    @property
    def any(self) -> bool:
        """Whether any policy moves pods for waiting ones."""
        return any(
            policy.rescheduling.moves_for(ReschedulingReason.WAITING_PODS, self._modes)
            for policy in self._policies.values()
        )

    @property
    def movable(self) -> Bools:
        """bool[V]: residents that policies let go, for waiting pods or for gain, whatever is decided."""
        return self._movable | self._may_ever_move(ReschedulingReason.GAIN)

    def most_moves(self, policy: str) -> int:
        """How many moves a policy allows in a round at most."""
        rescheduling = self._policies[policy].rescheduling
        return max(0, min(rescheduling.per_round, rescheduling.per_hour - self._last_hour[policy]))

    def gaining(self, excluded: Collection[str] = ()) -> frozenset[str]:
        """Names of the policies that move for gain; ``excluded``: other policies."""
        return self._moving(ReschedulingReason.GAIN, excluded)

    def _moving(self, reason: ReschedulingReason, excluded: Collection[str]) -> frozenset[str]:
        return frozenset(
            name
            for name, policy in self._policies.items()
            if policy.rescheduling.moves_for(reason, self._modes) and name not in excluded
        )

    def _may_ever_move(self, reason: ReschedulingReason, excluded: Collection[str] = ()) -> Bools:
        """bool[V]: residents that policies let go for a reason, whatever is decided; ``excluded``: other policies."""
        residents = self._residents
        moves = self._moving(reason, excluded)
        if not moves:
            return np.zeros(len(residents.pods), dtype=np.bool_)
        # A pod that its kubelet has not started has not run, however long it waited for its node.
        aged = {
            name
            for name in moves
            if reason is ReschedulingReason.GAIN and self._policies[name].rescheduling.min_age > 0
        }
        may_move = [kind.policy in moves and not kind.immovable_reason for kind in residents.kind_list]
        movable = residents.evictable & np.array(may_move, dtype=np.bool_)[residents.kinds]
        movable[residents.running_count :] = False
        if aged:
            unaged = np.array([kind.policy not in aged for kind in residents.kind_list], dtype=np.bool_)
            movable &= (residents.started > 0) | unaged[residents.kinds]
        return movable

    def mask(self, priority: int) -> Bools:
        """bool[V]: residents that may be moved for a pod of a priority, but for budgets and limits."""
        movable: Bools = self._movable & (self._residents.priorities <= priority)
        movable[list(self._state.leaving)] = False
        return movable

    def ever_gaining(self, excluded: Collection[str] = ()) -> Bools:
        """bool[V]: residents that policies let go for gain, those that leave too.

        Args:
            excluded: names of policies that move none for gain.
        """
        return self._may_ever_move(ReschedulingReason.GAIN, excluded)

    def gain_mask(self, excluded: Collection[str] = ()) -> Bools:
        """bool[V]: residents that may be moved for gain, but for budgets and limits; ``excluded``: as above."""
        movable = self.ever_gaining(excluded)
        movable[list(self._state.leaving)] = False
        return movable

    def may_move(self, resident: int, priority: int) -> bool:
        """Whether a resident may be moved for a pod of a priority, within all limits."""
        if not self._movable[resident] or self._residents.pods[resident].priority > priority:
            return False
        return self.may_be_evicted(resident) and self.within_limits(resident)

    def may_leave_as_move(self, resident: int) -> bool:
        """Whether a resident that leaves anyhow may be moved, within all limits."""
        return bool(self._movable[resident]) and self.within_limits(resident)

    def may_be_evicted(self, resident: int) -> bool:
        """Whether a running pod may be evicted now, by itself and by its PodDisruptionBudgets."""
        state, pod = self._state, self._residents.pods[resident]
        return (
            resident not in state.leaving
            and bool(self._residents.evictable[resident])
            and (not pod.budgets or all(state.budgets[budget] > 0 for budget in pod.budgets))
        )

    def within_limits(self, resident: int) -> bool:
        """Whether the limits of its policy let one more pod like this leave."""
        pod = self._residents.pods[resident]
        policy = self._policies.get(pod.policy)
        if policy is None or not self._is_open(resident, pod):
            return False
        limits = policy.rescheduling
        return (
            self._left(("node", pod.node), limits.per_node) > 0
            and self._left(("owner", pod.owner), limits.per_owner) > 0
        )

    def _is_open(self, resident: int, pod: RunningPod) -> bool:
        """Whether those limits let one more leave that the pods of its policy and namespace share."""
        if self._open_after != self._state.changes:
            self._open.clear()
            self._open_after = self._state.changes
        key = pod.policy, pod.namespace
        is_open = self._open.get(key)
        if is_open is None:
            shared = (most for (what, _), most in self.limits(resident).items() if what not in ("node", "owner"))
            is_open = self._open[key] = min(shared) > 0
        return is_open

    def limits(self, resident: int) -> dict[tuple[str, str], int]:
        """How many more moves the policy of a resident allows, by what is counted (``Plan.moves``)."""
        pod = self._residents.pods[resident]
        rescheduling = self._policies[pod.policy].rescheduling
        most = {
            ("node", pod.node): rescheduling.per_node,
            ("namespace", pod.namespace): rescheduling.per_namespace,
            ("owner", pod.owner): rescheduling.per_owner,
            ("policy", pod.policy): min(rescheduling.per_round, rescheduling.per_hour - self._last_hour[pod.policy]),
            share_key(pod): self._share(pod),
        }
        return {key: self._left(key, limit) for key, limit in most.items()}

    def _left(self, key: tuple[str, str], limit: int) -> int:
        return limit - self._state.moves.get(key, 0) - self._recent.get(key, 0)

    def _share(self, pod: RunningPod) -> int:
        """How many more moves of this hour the namespace of a pod may have under its policy.

        Half of what the other namespaces have not had: else one of them could leave no moves for the others. All of it
        where no other namespace has pods of the policy.
        """
        own = self._last_hour[pod.policy, pod.namespace]
        left = self._policies[pod.policy].rescheduling.per_hour - (self._last_hour[pod.policy] - own)
        if len(self._namespaces[pod.policy]) > 1:
            left = -(-left // 2)  # one where one is left
        return left - own

    @cached_property
    def _namespaces(self) -> dict[str, set[str]]:
        """By policy, the namespaces of its running pods."""
        residents, namespaces = self._residents, dict[str, set[str]]()
        for number in np.unique(residents.kinds[: residents.running_count]).tolist():
            kind = residents.kind_list[number]
            namespaces.setdefault(kind.policy, set()).add(kind.signature.namespace)
        return namespaces
