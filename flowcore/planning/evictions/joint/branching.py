"""Branch and bound over the nodes of a few pods, the most important pods first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from flowcore.planning.evictions.joint.losses import Levels
from flowcore.planning.evictions.joint.node_options import Item, NodeOption, NodeOptions
from flowcore.planning.plan_key import PlanKey

#: Steps of the search, and plans that may be refused.
_MOST_STEPS, _MOST_REFUSED = 4_000, 24
PENDING = -1


@dataclass(frozen=True, slots=True)
class JointPlan:
    """For each item the place of its node among those that may be used, ``PENDING``: none; and all pods that leave."""

    places: tuple[int, ...]
    members: tuple[int, ...]


class Branching:
    """Looks for the best plan that is better than the known one."""

    def __init__(
        self,
        items: Sequence[Item],
        levels: Levels,
        ways: Sequence[Sequence[int]],
        nodes: Sequence[NodeOptions],
        limits: Mapping[str, int],
        must_place: Sequence[bool],
        known: PlanKey,
        may_share: Callable[[int, int, int], bool],
        accepts: Callable[[JointPlan], bool],
    ) -> None:
        """Nodes are numbers, from 0.

        Args:
            items: the most important first; those of a demand side by side, those that must be placed first.
            ways: for each item the nodes that may take it, the most promising first; equal for items of a demand.
            nodes: who may leave each node.
            limits: how many may leave that count for each.
            must_place: for each item whether it may not wait.
            known: what the plan is compared by that is to be improved.
            may_share: whether two items may be on a node together; asked by their numbers and the node's.
            accepts: whether every rule holds for a plan.
        """
        self._items, self._levels, self._ways, self._nodes, self._limits = items, levels, ways, nodes, limits
        self._must_place, self._known, self._may_share, self._accepts = must_place, known, may_share, accepts
        self._best: JointPlan | None = None
        self._places: list[int] = []
        self._masks = [0] * len(nodes)
        nobody = NodeOption((), levels.none, {})
        self._options = [nobody] * len(nodes)
        self._waiting = [0] * len(levels)
        self._steps = self._refused = 0

    def result(self) -> JointPlan | None:
        """The best plan; None: none that is better was found."""
        self._decide_next()
        return self._best

    def _decide_next(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS or self._refused > _MOST_REFUSED:
            return
        losses = self._levels.together(option.losses for option in self._options)
        key = self._levels.key(self._waiting, losses)
        if key >= self._known:
            return
        number = len(self._places)
        if number == len(self._items):
            plan = JointPlan(tuple(self._places), tuple(member for each in self._options for member in each.members))
            if self._accepts(plan):
                self._known, self._best = key, plan
            else:
                self._refused += 1
            return
        for place in self._places_for(number):
            self._place(number, place)
        if not self._must_place[number]:
            item = self._items[number]
            level = self._levels.place(item.priority)
            self._waiting[level] += item.worth
            self._places.append(PENDING)
            self._decide_next()
            self._places.pop()
            self._waiting[level] -= item.worth

    def _places_for(self, number: int) -> Sequence[int]:
        """The nodes to try: equal pods take them in one order."""
        item, ways = self._items[number], self._ways[number]
        before = self._items[number - 1] if number else None
        if before is None or before.demand != item.demand or before.preempts != item.preempts:
            return ways
        taken = self._places[-1]
        return ways[ways.index(taken) :] if taken != PENDING else ()

    def _place(self, number: int, place: int) -> None:
        mask, option = self._masks[place], self._options[place]
        if not all(self._may_share(number, beside, place) for beside in range(number) if mask >> beside & 1):
            return
        self._places.append(place)
        self._masks[place] = mask | 1 << number
        for choice in self._nodes[place].best(self._masks[place]):
            self._options[place] = choice
            if self._is_within_limits():
                self._decide_next()
        self._masks[place], self._options[place] = mask, option
        self._places.pop()

    def _is_within_limits(self) -> bool:
        counted = Counter[str]()
        for option in self._options:
            counted.update(option.counted)
        return all(count <= self._limits[name] for name, count in counted.items())
