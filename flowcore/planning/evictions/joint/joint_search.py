"""The nodes of a few urgent pods, and who leaves for them, decided for all of them together.

One urgent pod after the other takes the node where it costs least, beside the room that others of the round have got
already. So one may take the free room that would have saved a later one more victims than it would have cost itself.
Here all nodes are tried for all pods of a small round, those that have a node too. Every pod that has a node
before others leave keeps one, and what is compared are the pods that wait and the victims (``Levels.key``). Rules
between pods are asked at the end, once for each plan that would be better.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from flowcore.planning.evictions.eligibility import Eligibility
from flowcore.planning.evictions.fit_checks import FitCheck
from flowcore.planning.evictions.joint.branching import PENDING, Branching, JointPlan
from flowcore.planning.evictions.joint.losses import Levels
from flowcore.planning.evictions.joint.node_options import MOST_MEMBERS, Item, NodeOptions
from flowcore.planning.plan_key import PlanKey
from flowcore.planning.problem.placements.decisions import Arrival
from flowcore.planning.problem.placements.plans import Plan
from flowcore.rules.filters import run_filters

#: Nodes that any of the pods may use: with more, one pod is decided after the other.
_MOST_NODES = 8
#: Verdicts of all filters for pods with rules, in a cluster of up to so many nodes: with more, too.
_MOST_VERDICTS, _FEW_NODES = 200, 1_000


class JointSearch:
    """Decides again for a few pods; all that was decided are preemptions and arrivals of these pods."""

    def __init__(
        self,
        state: Plan,
        eligibility: Eligibility,
        items: Sequence[Item],
        check_of: Callable[[int], FitCheck],
        holds: Callable[[], bool],
    ) -> None:
        """Takes what is decided so far as the plan to improve.

        Args:
            items: all placements, all other pods that come, and all that wait and for which others may leave.
            check_of: the fit check of a demand, by number.
            holds: whether every filter passes for all that is decided.
        """
        self._state, self._residents, self._eligibility, self._holds = state, state.residents, eligibility, holds
        nodes = {item.pod.key: self._node_of(item) for item in items}
        self._items = sorted(
            items,
            key=lambda item: (
                -item.priority,
                -state.demands[item.demand].dominant_share,
                item.demand,
                not item.preempts,
                not self._must_place(item, nodes[item.pod.key]),
            ),
        )
        #: The node that each item has so far; ``PENDING``: none.
        self._before = [nodes[item.pod.key] for item in self._items]
        self._levels = Levels(item.priority for item in items)
        self._checks = {item.demand: check_of(item.demand) for item in items}
        self._is_ruled = any(not check.by_node for check in self._checks.values())
        possible = np.any([check.possible for check in self._checks.values()], axis=0)
        self._nodes: list[int] = np.nonzero(possible)[0].tolist()
        self._placements = [item.resident for item in items if item.resident >= 0]
        self._shared: dict[tuple[int, int, int], bool] = {}
        # A verdict is about all nodes of the cluster.
        self._verdicts_left = _MOST_VERDICTS * _FEW_NODES // max(_FEW_NODES, len(state.free))

    def improve(self) -> bool:
        """Decides otherwise where that is better. Returns whether it was."""
        state, nodes = self._state, self._nodes
        ruled = sum(not check.by_node for check in self._checks.values())
        residents = sum(len(self._residents.on(node)) for node in nodes)
        if len(nodes) > _MOST_NODES or ruled * residents > self._verdicts_left:
            return False
        known, before = self._key(), state.checkpoint()
        limits: dict[str, int] = {}
        # Where it stays as it is they leave again in the order in which they left.
        for resident in reversed(list(state.leaving)):
            state.stay(resident)
        state.drop_arrivals(state.arrived)
        members = {node: self._members(node, limits) for node in nodes}
        plan = Branching(
            self._items,
            self._levels,
            [self._ways(item) for item in self._items],
            [self._options(node, members, limits) for node in nodes],
            limits,
            [self._must_place(item, node) for item, node in zip(self._items, self._before, strict=True)],
            known,
            self._may_share,
            self._accepts,
        ).result()
        if plan is None:
            state.roll_back(before)
            return False
        self._decide(plan)
        return True

    def _must_place(self, item: Item, node: int) -> bool:
        """Whether an item keeps a node: the round gave it one already, or it takes what room is left."""
        return node != PENDING and (item.resident >= 0 or not item.preempts)

    def _node_of(self, item: Item) -> int:
        for arrival in self._state.arrivals:
            if arrival.pod.key == item.pod.key:
                return arrival.node
        if item.resident < 0 or item.resident in self._state.leaving:
            return PENDING
        return int(self._residents.nodes[item.resident])

    def _key(self) -> PlanKey:
        """What the plan so far is compared by."""
        levels, waiting = self._levels, [0] * len(self._levels)
        for item, node in zip(self._items, self._before, strict=True):
            waiting[levels.place(item.priority)] += item.worth if node == PENDING else 0
        victims = [resident for resident in self._state.leaving if self._residents.is_running(resident)]
        losses = levels.together(levels.loss(int(self._residents.priorities[victim])) for victim in victims)
        return levels.key(waiting, losses)

    # --- what the branching asks ---

    def _ways(self, item: Item) -> list[int]:
        """Places of the nodes that may ever take an item; those that have pods of its demand so far come first."""
        possible = self._checks[item.demand].possible
        before = Counter(
            node for alike, node in zip(self._items, self._before, strict=True) if alike.demand == item.demand
        )
        places = [place for place, node in enumerate(self._nodes) if possible[node]]
        return sorted(places, key=lambda place: -before[self._nodes[place]])

    def _members(self, node: int, limits: dict[str, int]) -> dict[int, list[str]]:
        """Who may leave a node for any of the items, each with the limits that it counts for; adds these limits."""
        residents = self._residents
        highest = max((item.priority for item in self._items if item.preempts), default=-(2**31))
        limits_of: dict[int, list[str]] = {}
        for resident in residents.on(node):
            if not (residents.is_running(resident) and self._eligibility.may_leave(resident, highest)):
                continue
            known = self._eligibility.limits_of(resident)
            limits |= known
            if all(left > 0 for left in known.values()):
                limits_of[resident] = list(known)
        # Of more, the least important ones.
        return dict(list(limits_of.items())[-MOST_MEMBERS:])

    def _options(
        self, node: int, members: Mapping[int, Mapping[int, list[str]]], limits: dict[str, int]
    ) -> NodeOptions:
        """What may leave a node for which items; ``members``: who may leave each node."""
        state, residents, here = self._state, self._residents, list(members[node])
        free = state.free[node].copy()
        for item in self._items:
            if item.resident >= 0 and int(residents.nodes[item.resident]) == node:
                free += residents.usage[item.resident]
        elsewhere = [member for place, those in members.items() if place != node for member in those]
        one_of_each = {item.demand: item for item in self._items}
        must_leave = {demand: self._must_leave(item, node, here, elsewhere) for demand, item in one_of_each.items()}
        return NodeOptions(residents, here, free, self._items, self._levels, members[node], limits, must_leave)

    def _must_leave(self, item: Item, node: int, members: Sequence[int], elsewhere: Sequence[int]) -> int:
        """Members, as bits, beside which rules or ports keep an item out though all the others have left.

        Args:
            elsewhere: who may leave other nodes. A rule about a zone may speak of them, so they have left too.
        """
        constraints = item.pod.signature.constraints
        if self._checks[item.demand].by_node or not self._checks[item.demand].possible[node]:
            return 0
        if constraints is not None and (constraints.affinity or constraints.spread):
            return 0  # the others may be what lets it in
        return sum(
            1 << bit
            for bit, member in enumerate(members)
            if not self._is_let_in(item, node, [*elsewhere, *(left for left in members if left != member)])
        )

    def _may_share(self, first: int, second: int, place: int) -> bool:
        """Whether neither of two items is rejected by its rules beside the other, on a node that all others leave."""
        pods = self._items[first], self._items[second]
        if all(self._checks[item.demand].by_node for item in pods):
            return True
        low, high = sorted(item.demand for item in pods)
        key = (low, high, place)
        if key not in self._shared:
            if self._verdicts_left <= 0:
                return False
            node = self._nodes[place]
            gone = [resident for resident in self._residents.on(node) if self._residents.is_running(resident)]
            self._shared[key] = all(
                not self._is_let_in(item, node, gone) or self._is_let_in(item, node, gone, beside)
                for item, beside in (pods, pods[::-1])
            )
        return self._shared[key]

    def _is_let_in(self, item: Item, node: int, without: Sequence[int], beside: Item | None = None) -> bool:
        """Whether every filter lets an item in on a node that some residents have left, beside another one."""
        self._verdicts_left -= 1
        group = self._state.demands[item.demand].group
        arrivals = [] if beside is None else [Arrival(beside.pod, beside.demand, node, at_once=True)]
        snapshot = self._state.snapshot([*self._placements, *without], arrivals=arrivals)
        return bool(run_filters(group.pod_class, snapshot, group.signature).fits[node])

    def _accepts(self, plan: JointPlan) -> bool:
        """Whether every filter passes for a plan, and nobody waits for others who may not."""
        checkpoint = self._state.checkpoint()
        self._decide(plan)
        # Nobody leaves for pods that may not preempt: they do not wait for the room of those that do.
        modest = {item.pod.key for item in self._items if not item.preempts}
        holds = all(each.at_once for each in self._state.arrivals if each.pod.key in modest) and self._holds()
        self._state.roll_back(checkpoint)
        return holds

    # --- decisions ---

    def _decide(self, plan: JointPlan) -> None:
        """Lets pods leave and come. With rules between pods all of them come anew, so that each is judged again."""
        state, residents = self._state, self._residents
        nodes = [self._nodes[place] if place != PENDING else PENDING for place in plan.places]
        coming = [
            (item, node)
            for item, node in zip(self._items, nodes, strict=True)
            if item.resident < 0 or self._is_ruled or int(residents.nodes[item.resident]) != node
        ]

        def for_pods(resident: int) -> list[str]:
            above = [
                (item.pod.key, node)
                for item, node in zip(self._items, nodes, strict=True)
                if item.preempts and node != PENDING and item.priority > int(residents.priorities[resident])
            ]
            here = [key for key, node in above if node == int(residents.nodes[resident])]
            return here or [key for key, _ in above]

        for resident in (*plan.members, *(item.resident for item, _ in coming if item.resident >= 0)):
            state.let_leave(resident, self._eligibility.kind, for_pods(resident))
        # Pods for which nobody may leave take the room that is free.
        for item, node in sorted(coming, key=lambda decision: decision[0].preempts):
            if node != PENDING:
                state.arrive(item.pod, item.demand, node)
