"""Who leaves one node so that several pods come to it: all sets of its running pods, the best first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, PendingPod
from flowcore.planning.evictions.joint.losses import Levels, Losses
from flowcore.planning.problem.placements.residents import Residents

#: Running pods of a node that may leave.
MOST_MEMBERS = 10
#: Sets that are known of a node for the same pods: what leaves other nodes may make another one the best.
_MOST_OPTIONS = 16
#: Sets of a node that are judged one by one, for all pods: later ones are left aside.
_MOST_JUDGEMENTS = 250


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """A pod of the round whose node is decided.

    Attributes:
        demand: number of its demand.
        preempts: whether running pods may leave for it.
        worth: what it counts for among pods of its priority that wait.
        resident: number of its placement among the residents; -1: it waits.
        requests: int64[R].
    """

    pod: PendingPod
    demand: int
    preempts: bool
    worth: int
    resident: int
    requests: Int64s

    @property
    def priority(self) -> int:
        """Its priority."""
        return self.pod.pod_class.priority


@dataclass(frozen=True, slots=True)
class NodeOption:
    """Running pods that leave a node together.

    Attributes:
        members: their numbers.
        losses: what it is to lose them.
        counted: how many of them count for each limit.
    """

    members: tuple[int, ...]
    losses: Losses
    counted: Mapping[str, int]


class NodeOptions:
    """The best sets for any of the items on one node. Items are bits of a mask, members bits of a set."""

    def __init__(
        self,
        residents: Residents,
        members: Sequence[int],
        free: Int64s,
        items: Sequence[Item],
        levels: Levels,
        limits_of: Mapping[int, Sequence[str]],
        limits: Mapping[str, int],
        must_leave: Mapping[int, int],
    ) -> None:
        """Lists all sets.

        Args:
            members: running pods of the node that may leave for some of the items, the most important first,
                ``MOST_MEMBERS`` at most.
            free: int64[R], without all of ``items``.
            limits_of: names of the limits that each member counts for.
            limits: how many may leave that count for each.
            must_leave: by demand, a set: members beside which no pod of it is let in, whatever room there is.
        """
        self._members, self._free, self._items, self._must_leave = tuple(members), free, items, must_leave
        self._priorities, self._limits_of = [int(residents.priorities[member]) for member in members], limits_of
        count = 1 << len(self._members)
        self._freed = np.zeros((count, len(free)), dtype=np.int64)
        self._losses, starts = [levels.none], [np.inf]
        is_within = np.ones(count, dtype=np.bool_)
        for bit, member in enumerate(self._members):
            half = 1 << bit
            self._freed[half : 2 * half] = self._freed[:half] + residents.usage[member]
            loss, started = levels.loss(self._priorities[bit]), residents.pods[member].started or np.inf
            self._losses += [levels.together((known, loss)) for known in self._losses]
            starts += [min(known, started) for known in starts]
        for name in {name for member in members for name in limits_of[member]}:
            counted = sum(1 << bit for bit, member in enumerate(self._members) if name in limits_of[member])
            is_within &= np.bitwise_count(np.arange(count) & counted) <= limits[name]
        # Of equal sets the one whose pods have started last.
        order = sorted(range(count), key=lambda chosen: (self._losses[chosen], -starts[chosen]))
        self._sets = np.array(order, dtype=np.int64)
        self._freed_in_order, self._is_within = self._freed[order], is_within[order]
        self._known: dict[int, tuple[NodeOption, ...]] = {}
        self._judgements_left = _MOST_JUDGEMENTS

    def best(self, mask: int) -> tuple[NodeOption, ...]:
        """The best sets that let these items in together, the first one by itself the best."""
        known = self._known.get(mask)
        if known is None:
            items = [item for number, item in enumerate(self._items) if mask >> number & 1]
            known = self._known[mask] = tuple(self._sufficient(items))
        return known

    def _sufficient(self, items: Sequence[Item]) -> list[NodeOption]:
        """Sets that suffice, in order; after the first one those that lose less in some respect than any before."""
        modest = [item for item in items if not item.preempts]
        if modest and not self._fit(modest, 0):
            return []
        highest = max((item.priority for item in items if item.preempts), default=-(2**31))
        may = sum(1 << bit for bit, priority in enumerate(self._priorities) if priority < highest)
        must, requests = self._must(items), _requests(items)
        asked = requests > 0
        enough = (self._freed_in_order[:, asked] + self._free[asked] >= requests[asked]).all(axis=1)
        usable = enough & self._is_within & ((self._sets & ~may) == 0) & ((self._sets & must) == must)
        several = len({item.priority for item in items}) > 1
        sufficient: list[NodeOption] = []
        smaller: list[int] = []
        for chosen in self._sets[usable].tolist():
            if any(chosen & known == known for known in smaller):
                continue
            if several:
                if not self._judgements_left:
                    break
                self._judgements_left -= 1
                if not self._leave_for_others(items, chosen):
                    continue
            smaller.append(chosen)
            option = self._option(chosen)
            if not any(_is_as_good(known, option) for known in sufficient):
                sufficient.append(option)
            if len(sufficient) == _MOST_OPTIONS:
                break
        return sufficient

    def _must(self, items: Sequence[Item]) -> int:
        must = 0
        for item in items:
            must |= self._must_leave[item.demand]
        return must

    def _fit(self, items: Sequence[Item], chosen: int) -> bool:
        """Whether items fit together once a set has left."""
        requests, must = _requests(items), self._must(items)
        asked = requests > 0
        return chosen & must == must and bool((self._freed[chosen][asked] + self._free[asked] >= requests[asked]).all())

    def _leave_for_others(self, items: Sequence[Item], chosen: int) -> bool:
        """Whether each of a set leaves for items of a higher priority than its own: these do not fit beside it."""
        for bit, priority in enumerate(self._priorities):
            if chosen >> bit & 1:
                above = [item for item in items if item.priority > priority]
                if not above or self._fit(above, chosen & ~(1 << bit)):
                    return False
        return True

    def _of(self, chosen: int) -> tuple[int, ...]:
        return tuple(member for bit, member in enumerate(self._members) if chosen >> bit & 1)

    def _option(self, chosen: int) -> NodeOption:
        members, counted = self._of(chosen), dict[str, int]()
        for member in members:
            for name in self._limits_of[member]:
                counted[name] = counted.get(name, 0) + 1
        return NodeOption(members, self._losses[chosen], counted)


def _is_as_good(option: NodeOption, compared: NodeOption) -> bool:
    """Whether an option is no worse than another one, whatever leaves other nodes.

    What a plan loses has a maximum in it: a set with a higher one and fewer pods may be the better one beside others.
    """
    pairs = zip(option.losses, compared.losses, strict=True)
    loses_no_more = all(loss <= known for pair in pairs for loss, known in zip(*pair, strict=True))
    return loses_no_more and all(count <= compared.counted.get(name, 0) for name, count in option.counted.items())


def _requests(items: Sequence[Item]) -> Int64s:
    requests: Int64s = np.sum([item.requests for item in items], axis=0, dtype=np.int64)
    return requests
