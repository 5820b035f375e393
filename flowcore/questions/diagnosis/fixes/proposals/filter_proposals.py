"""Changes that filters say would help: by relaxations of one or two things, by more nodes, by moves.

They are cheap to find: no plan is made. What a plan makes of them is asked afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import TypeVar

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools
from flowcore.questions.diagnosis.fixes.proposals.device_relaxations import device_relaxations
from flowcore.questions.diagnosis.fixes.proposals.relaxations import NEVER, Relaxation, Site, WithoutRule, relaxations
from flowcore.questions.diagnosis.fixes.proposals.waiting_pods import Judge, Wanted
from flowcore.questions.scenario.hypothetical.changes import Change

_T = TypeVar("_T")

#: Most pairs of relaxations that are judged.
_MAX_PAIRS = 120
#: Changes to plan with.
Proposal = tuple[Change, ...]


class Relaxed:
    """All relaxations of the waiting pods, and what filters say of them."""

    def __init__(self, judge: Judge, wanted: Sequence[Wanted]) -> None:
        self._judge, self._wanted = judge, wanted
        every = (
            relaxation
            for kind in (relaxations, device_relaxations)
            for pods in wanted
            for relaxation in kind(pods, judge.snapshot)
        )
        self.all: tuple[Relaxation, ...] = tuple(_unique(every))

    def singles(self, *, others: bool = False) -> Iterator[Proposal]:
        """One relaxation each.

        Args:
            others: those that open nodes which are full now.
        """
        for relaxation in self.all:
            yield from self._proposal((relaxation,), others=others)

    def pairs(self) -> Iterator[Proposal]:
        """Two relaxations each."""
        for number, pair in enumerate(combinations(self.all, 2)):
            if number >= _MAX_PAIRS:
                return
            yield from self._proposal(pair, others=False)

    def rules(self) -> Iterator[tuple[list[Wanted], Proposal]]:
        """Each rule that the pods may give up by themselves: the pods without it, and the changes."""
        for relaxation in self.all:
            if isinstance(relaxation, WithoutRule):
                lifted = self._lifted((relaxation,))
                changes = [
                    change
                    for pods, now in zip(self._wanted, lifted, strict=True)
                    if now != pods
                    for change in relaxation.for_all(pods)
                ]
                yield lifted, tuple(changes)

    def _lifted(self, by: Sequence[Relaxation]) -> list[Wanted]:
        """The waiting pods after relaxations."""
        lifted = []
        for pods in self._wanted:
            now = pods
            for relaxation in by:
                now = relaxation.lift(now)
            lifted.append(now)
        return lifted

    def _proposal(self, by: Sequence[Relaxation], *, others: bool) -> Iterator[Proposal]:
        changes: list[Change] = []
        for pods, lifted in zip(self._wanted, self._lifted(by), strict=True):
            judged = lifted.without_requests() if others else lifted
            mask = self._judge.fits(judged)
            if others:
                mask &= ~self._judge.fits(pods.without_requests())
            if not mask.any():
                return
            if lifted == pods:
                continue  # these pods are not concerned
            node = self._best_node(pods, by, mask)
            if node < 0:
                return
            site = Site(self._judge.snapshot, pods, lifted, mask, node)
            for relaxation in by:
                settled = relaxation.settle(site) if relaxation.lift(pods) != pods else []
                if not settled and len(self._wanted) == 1:
                    return
                changes += settled
        if changes:
            yield tuple(_unique(changes))

    def _best_node(self, pods: Wanted, by: Sequence[Relaxation], mask: Bools) -> int:
        cost = np.zeros(len(mask), dtype=np.int64)
        possible = mask.copy()
        for relaxation in by:
            dislike = relaxation.prefers(pods, self._judge.snapshot) if relaxation.lift(pods) != pods else None
            if dislike is not None:
                possible &= dislike < NEVER
                cost += np.where(dislike < NEVER, dislike, 0)
        if not possible.any():
            return -1
        return int(np.argmin(np.where(possible, cost, NEVER)))


def _unique(items: Iterable[_T]) -> Iterator[_T]:
    """Each item once; they need not be hashable."""
    seen: list[_T] = []
    for item in items:
        if item not in seen:
            seen.append(item)
            yield item
