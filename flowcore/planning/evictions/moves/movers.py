"""Who may be moved: running pods that policies let go, within their limits, and where they go.

The search for victims asks for those that move for a waiting pod as for those that may be preempted. What differs is
who they are, that as few as possible leave, and that each of them gets a place that is free now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, PendingPod
from flowcore.costs import CostModel
from flowcore.model.pod_index import AffinityMatch
from flowcore.model.policies import Policy, ReschedulingMode, ReschedulingReason
from flowcore.model.running_pods import EvictionKind, RecentMove, RunningPod
from flowcore.model.turns import share_left
from flowcore.planning.evictions.eligibility import Eligibility, PossibleEviction
from flowcore.planning.evictions.moves.destinations import Destinations
from flowcore.planning.plan_key import Loss, PlanKey
from flowcore.planning.problem.placements.decisions import share_key
from flowcore.planning.problem.placements.plans import Plan
from flowcore.rules.verdicts import VerdictCache


class Movers(Eligibility):
    """Asks of the state, and reserves new places in it.

    Attributes:
        destinations: finds nodes for those that leave.
    """

    kind = EvictionKind.MIGRATION
    most_nodes = 96

    def __init__(
        self,
        state: Plan,
        policies: Mapping[str, Policy],
        models: Mapping[str, CostModel],
        cache: VerdictCache,
        modes: Sequence[ReschedulingMode],
    ) -> None:
        """``modes``: of the policies that move their pods."""
        super().__init__(state)
        self._policies, self._modes = policies, modes
        #: Policies whose pods a network places: none move for gain, and none at all where the network needs each.
        self._drawing = {name for name, policy in policies.items() if policy.network is not None}
        self._unmoved = {name for name in self._drawing if not _is_of_single_pods(policies[name])}
        self._recent: dict[tuple[str, str], int] = {}
        #: Moves of the last hour by policy, and by policy and namespace.
        self._last_hour: Counter[str | tuple[str, str]] = Counter()
        for move in state.residents.running.moves:
            self._count(move)
        self.destinations = Destinations(state, policies, models, cache, self.gaining)
        self._wanted: AffinityMatch | None = None
        #: Those that found no place beside others of their sets, for the pod in hand: other sets may have places.
        self._stuck: set[int] = set()

    # --- for a waiting pod ---

    def begin(self, pod: PendingPod) -> bool:
        """Turns to a waiting pod. Whether any policy moves pods for it."""
        constraints = pod.signature.constraints
        affinity = () if constraints is None else constraints.affinity
        self._wanted = AffinityMatch(affinity) if affinity else None
        self._stuck.clear()
        return self.any

    def mask(self, priority: int) -> Bools:
        """bool[V]: residents that may be moved for a pod of a priority, and for which some node has the resources."""
        return self.destinations.may_fit(self.let_go(priority))

    def may_leave(self, resident: int, priority: int) -> bool:
        """Whether a resident may be moved for a pod of a priority now, and some node takes it."""
        may_move = resident not in self._stuck and self.may_move(resident, priority)
        return may_move and self.destinations.has_any(resident)

    def evictions(self, here: Sequence[int], priority: int) -> list[list[PossibleEviction]]:
        """Sets of some residents; and each without one that the required affinity of the pod in hand wants near it."""
        choices, wanted, pods = super().evictions(here, priority), self._wanted, self._residents.pods
        if wanted is None:
            return choices
        namespaces = self._state.before.pod_index.namespaces
        leaving = {member for choice in choices for each in choice for member in each.members}
        partners = [member for member in sorted(leaving) if wanted.includes(pods[member].signature, namespaces)]
        beside = [[each for each in choice if each.members != (partner,)] for choice in choices for partner in partners]
        return choices + [choice for choice in beside if choice]

    def rank(self, loss: Loss) -> PlanKey:
        """As few as possible."""
        return PlanKey(moves=int(loss.number), moved=loss)

    def decide(self, members: Sequence[int], pods: Sequence[PendingPod], demand: int, node: int) -> bool:
        """The largest leaves first, so that each counts for the limits of the next. If one has no place, none leaves.

        Where they go depends on the pods that come.
        """
        state, usage, keys = self._state, self._residents.usage, [pod.key for pod in pods]
        checkpoint = state.checkpoint()
        for pod in pods:
            state.arrive(pod, demand, node)
        priority = state.demands[demand].group.pod_class.priority
        for member in sorted(members, key=lambda member: -int(usage[member].max())):
            if self.may_move(member, priority):
                state.let_leave(member, self.kind, keys)
                if self.destinations.reserve(member, is_move=True):
                    continue
            state.roll_back(checkpoint)
            self._stuck.add(member)
            return False
        return True

    # --- for any reason ---

    def _count(self, move: RecentMove) -> None:
        self._last_hour.update((move.policy, (move.policy, move.namespace)))
        if move.under_way:
            for key in (("node", move.node), ("namespace", move.namespace), ("owner", move.owner)):
                self._recent[key] = self._recent.get(key, 0) + 1

    @cached_property
    def _movable(self) -> Bools:
        """bool[V]: residents that policies let go for waiting pods, whatever is decided."""
        return self._of_reason(ReschedulingReason.WAITING_PODS)

    @cached_property
    def gaining(self) -> Bools:
        """bool[V]: residents that policies let go for gain, whatever is decided."""
        gaining, residents = self._of_reason(ReschedulingReason.GAIN), self._residents
        for number in np.nonzero(gaining & (residents.started == 0))[0].tolist():
            # A pod that its kubelet has not started has not run, however long it waited for its node.
            gaining[number] = not self._policies[residents.pods[number].policy].rescheduling.min_age
        return gaining

    def _of_reason(self, reason: ReschedulingReason) -> Bools:
        residents = self._residents
        names = {name for name, policy in self._policies.items() if policy.rescheduling.moves_for(reason, self._modes)}
        names -= self._drawing if reason is ReschedulingReason.GAIN else self._unmoved
        may_move = [kind.policy in names and not kind.immovable_reason for kind in residents.kind_list]
        movable = residents.evictable & np.array(may_move, dtype=np.bool_)[residents.kinds]
        movable[residents.running_count :] = False
        return movable

    @cached_property
    def any(self) -> bool:
        """Whether policies let any pod go for waiting ones."""
        return bool(self._movable.any())

    @property
    def movable(self) -> Bools:
        """bool[V]: residents that policies let go, for waiting pods or for gain, whatever is decided."""
        return self._movable | self.gaining

    def most_moves(self, policy: str) -> int:
        """How many moves a policy allows in a round at most."""
        rescheduling = self._policies[policy].rescheduling
        return max(0, min(rescheduling.per_round, rescheduling.per_hour - self._last_hour[policy]))

    def moves_left(self, policy: str) -> int:
        """How many more moves a policy allows in this round at most."""
        return max(0, self.most_moves(policy) - self._state.moves["policy", policy])

    def let_go(self, priority: int) -> Bools:
        """bool[V]: residents that may be moved for a pod of a priority, but for budgets and limits."""
        movable: Bools = self._movable & (self._residents.priorities <= priority)
        movable[list(self._state.leaving)] = False
        return movable

    def may_move(self, resident: int, priority: int) -> bool:
        """Whether a resident may be moved for a pod of a priority, within all limits."""
        if not self._movable[resident] or self._residents.pods[resident].priority > priority:
            return False
        return self.may_go(resident)

    def may_go(self, resident: int, *, by_controller: bool = False) -> bool:
        """Whether a running pod may leave now: by itself, its PodDisruptionBudgets and the limits of its policy.

        Args:
            by_controller: the taint-eviction controller deletes it, which asks no PodDisruptionBudget.
        """
        state, pod = self._state, self._residents.pods[resident]
        evictable = by_controller or (
            resident not in state.leaving
            and bool(self._residents.evictable[resident])
            and (not pod.budgets or all(state.budgets[budget] > 0 for budget in pod.budgets))
        )
        return evictable and self._is_open(resident)

    def may_go_instead(self, resident: int) -> bool:
        """Whether a resident that leaves anyhow may be moved, within all limits."""
        return bool(self._movable[resident]) and self._is_open(resident)

    def is_made_again(self, resident: int) -> bool:
        """Whether a controller makes a running pod again, and a policy governs its replacement and knows its way."""
        pod = self._residents.pods[resident]
        is_made = self._residents.is_running(resident) and bool(pod.owner) and not pod.gang
        policy = self._policies.get(pod.policy) if is_made else None
        return policy is not None and not (policy.network_rules is not None and policy.network_rules.has_choice)

    def _is_open(self, resident: int) -> bool:
        """Whether the limits of its policy let one more pod like this leave."""
        is_governed = self._residents.pods[resident].policy in self._policies
        return is_governed and min(self.limits(resident).values()) > 0

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
        """How many more moves of this hour the namespace of a pod may have under its policy."""
        own, most = self._last_hour[pod.policy, pod.namespace], self._policies[pod.policy].rescheduling.per_hour
        is_shared = len(self._namespaces[pod.policy]) > 1
        return share_left(most, own, self._last_hour[pod.policy] - own, is_shared=is_shared)

    @cached_property
    def _namespaces(self) -> dict[str, set[str]]:
        """By policy, the namespaces of its running pods."""
        residents, namespaces = self._residents, dict[str, set[str]]()
        for number in np.unique(residents.kinds[: residents.running_count]).tolist():
            kind = residents.kind_list[number]
            namespaces.setdefault(kind.policy, set()).add(kind.signature.namespace)
        return namespaces


def _is_of_single_pods(policy: Policy) -> bool:
    """Whether a pod may go elsewhere and the policy's network has all that it must."""
    return policy.network_rules is not None and policy.network_rules.may_move
