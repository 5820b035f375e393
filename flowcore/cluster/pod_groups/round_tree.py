"""What a tree of gangs lacks in one round: which of its gangs may be placed, and why the others wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from flowcore.cluster.gang_specs.gang_slices import Slices
from flowcore.model.gang_spec import GangKey, GangSpec, GroupTree
from flowcore.model.gangs import GangTree
from flowcore.model.policies import Delivery


@dataclass(frozen=True, slots=True)
class GangProgress:
    """A gang in one round, as ``RoundGangs`` computes it.

    Attributes:
        spec: what it needs.
        placed: how many of its pods have a node or are on their way to one.
        missing: how many more it needs; zero or less where it has enough.
        is_preempting: whether it has enough only with pods whose places others must leave first; they may stay.
        has_waiting: whether any of its pods waits.
        deliveries: how the plans of its pods in this round are delivered.
        unschedulable_reason: why it cannot be placed in this round whatever room there is, apart from its group; ""
            where it may.
        slices: ``slices_of``.
    """

    spec: GangSpec
    placed: int
    missing: int
    is_preempting: bool
    has_waiting: bool
    deliveries: frozenset[Delivery]
    unschedulable_reason: str
    slices: Slices


class RoundTree:
    """A tree of gangs in one round. Each of its gangs is computed once."""

    def __init__(
        self,
        tree: GroupTree,
        ended: Collection[GangKey],
        progress_of: Callable[[GangKey], GangProgress | None],
        domain_of: Callable[[Sequence[GangKey], str], str],
    ) -> None:
        """For one round.

        Args:
            ended: gangs that ran and are done: they are there.
            progress_of: a gang in this round; None: it has no pods.
            domain_of: the domain, by a label, of the pods of some gangs that have a node; "": none has.
        """
        self._tree, self._domain_of = tree, domain_of
        self._progress = {key: progress_of(key) for key in tree.all_gangs}
        known = {key: progress for key, progress in self._progress.items() if progress is not None}
        self._enough = {
            key
            for key, progress in known.items()
            if (progress.missing <= 0 and not progress.is_preempting) or key in ended
        }
        asking = {
            key: progress.deliveries
            for key, progress in known.items()
            if key not in self._enough and not self._own_reason(key)
        }
        # Plans that are delivered in several ways are not carried out together: the way of most gangs counts.
        most = Counter(asking.values()).most_common(1)
        self._asking = {key for key, deliveries in asking.items() if deliveries == most[0][0]}
        self._domains: dict[str, str] = {}

    def terms(self, key: GangKey) -> tuple[tuple[GangTree, ...], str]:
        """The trees above a gang of this one, the widest first, and why it cannot be placed in them; "": it may."""
        above = self._tree.above(key)
        levels = tuple(self._level(tree) for tree in above)
        progress = self._progress[key]
        if progress is None or progress.missing <= 0:
            return levels, ""
        blocked = next((tree for tree in above if not self._may_be_met(tree)), None)
        if blocked is None and (key in self._asking or not any(level.missing for level in levels)):
            return levels, ""
        if progress.placed > 0 and self._may_have_ended(key):
            return tuple(GangTree(level.name, 0, level.topology_key, level.domain) for level in levels), ""
        why = ": its group is not delivered the same way" if blocked is None else self._why_not(blocked)
        return (), f"{key.display_name}{why}"

    def _own_reason(self, key: GangKey) -> str:
        """Why a gang cannot be placed whatever the others do, to be said after another's name; "": it may."""
        progress = self._progress[key]
        if progress is None:
            return f": {key.display_name} of its group has no pods"
        if progress.spec.tree != self._tree:
            return f": {key.display_name} does not name the same group"
        if progress.is_preempting:
            return f": pods of {key.display_name} of its group wait for others to leave their nodes"
        return f" waits for its group: {progress.unschedulable_reason}" if progress.unschedulable_reason else ""

    def _level(self, tree: GroupTree) -> GangTree:
        met = sum(key in self._enough for key in tree.gangs) + sum(
            below.is_met(self._enough.__contains__) for below in tree.trees
        )
        if tree.topology_key and tree.name not in self._domains:
            self._domains[tree.name] = self._domain_of(tree.all_gangs, tree.topology_key)
        return GangTree(tree.name, max(0, tree.least - met), tree.topology_key, self._domains.get(tree.name, ""))

    def _may_be_met(self, tree: GroupTree) -> bool:
        """Whether it has what it needs once every gang that may be placed is."""
        return tree.is_met(lambda key: key in self._enough or key in self._asking)

    def _may_have_ended(self, key: GangKey) -> bool:
        """Whether a gang that has begun lacks no other than such without waiting pods: they may have ended before."""

        def is_there(gang: GangKey) -> bool:
            progress = self._progress[gang]
            if gang == key or gang in self._enough or progress is None:
                return True
            return progress.is_preempting or not progress.has_waiting

        return all(tree.is_met(is_there) for tree in self._tree.above(key))

    def _why_not(self, tree: GroupTree) -> str:
        """Why a tree cannot have what it needs, to be said after the name of a gang of it."""
        exist = len(tree.gangs) + len(tree.trees)
        if exist < tree.least:
            reason = f"{tree.name}: {exist} of {tree.least} groups exist"
            return f" waits for its group: {reason}"
        lacking = (key for key in tree.gangs if key not in self._enough and key not in self._asking)
        for key in lacking:
            return self._own_reason(key) or ": its group is not delivered the same way"
        return self._why_not(next(below for below in tree.trees if not self._may_be_met(below)))
