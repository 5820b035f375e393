"""What limits how many pods leave at once, in a lower bound: PodDisruptionBudgets, limits of moves, what a queue lent.

Each is a row across nodes: what the pods that leave count for together stays below something. Its dual is not needed:
for given prices of room it is known what each pod saves by leaving, and the pods that save most are the best ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import Float64s

#: Sums of floats are off by less than this part of them.
_FLOAT_ERROR = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class LeavingLimit:
    """K pods of which a plan lets only some leave or move.

    Attributes:
        pods: int64[K], their numbers.
        amounts: float64[Q, K], what each counts for in each of Q ways, none negative. In every plan in which some of
            them leave one of the ways keeps its limit.
        most: float64[Q]. Those that leave, but for one of them, count for less than this.
    """

    pods: Int64s
    amounts: Float64s
    most: Float64s

    @classmethod
    def of_count(cls, pods: Int64s, most: int) -> LeavingLimit:
        """At most so many of these pods leave."""
        return cls(pods, np.ones((1, len(pods))), np.array([float(most)]))

    @property
    def is_idle(self) -> bool:
        """Whether all of them may leave together."""
        return bool((self.amounts.sum(axis=1) - self.amounts.max(axis=1, initial=0.0) < self.most).any())

    @property
    def is_closed(self) -> bool:
        """Whether none of them leaves in any plan."""
        return not (self.most > 0).any()

    @property
    def share(self) -> float:
        """About which part of them may leave."""
        return float(min(1.0, (self.most / np.maximum(self.amounts.sum(axis=1), 1.0)).max(initial=0.0)))

    def most_saved(self, saved: Int64s) -> int:
        """No pods that leave together in a plan save more.

        Args:
            saved: int64[K], what each saves, none negative.
        """
        ways = zip(self.amounts, self.most.tolist(), strict=True)
        return max((_most_saved(saved, amounts, most) for amounts, most in ways if most > 0), default=0)


def most_saved(saved: Int64s, limits: Iterable[LeavingLimit]) -> int:
    """What those that leave together in a plan save at most.

    Args:
        saved: int64[V], what each saves by leaving, none negative.
        limits: no pod is in two.
    """
    is_limited = np.zeros(len(saved), dtype=np.bool_)
    total = 0
    for limit in limits:
        is_limited[limit.pods] = True
        total += limit.most_saved(saved[limit.pods])
    return total + whole_sum(saved[~is_limited])


def _most_saved(saved: Int64s, amounts: Float64s, most: float) -> int:
    """The smaller of two bounds: by how many pods may leave, and by what they count for."""
    few = int(np.count_nonzero(np.cumsum(np.sort(amounts)) < most)) + 1
    by_number = whole_sum(np.sort(saved)[::-1][:few])
    # The knapsack in fractions (Dantzig 1957): what saves most for its amount comes first. One more pod leaves.
    worth = np.full(len(saved), np.inf)
    np.divide(saved, amounts, out=worth, where=amounts > 0)
    order = np.argsort(-worth, kind="stable")
    part = np.ones(len(saved))
    asked = amounts[order]
    before = np.cumsum(asked) - asked
    np.divide(np.clip(most - before, 0.0, asked), asked, out=part, where=asked > 0)
    by_amount = float((saved[order] * part).sum())
    return min(by_number, int(by_amount * (1 + _FLOAT_ERROR)) + 1 + int(saved.max(initial=0)))


def whole_sum(values: Int64s) -> int:
    """The sum of int64[K], of any size: one of 64 bits wraps around where prices are very high."""
    half = 32
    return (int((values >> half).sum()) << half) + int((values & (2**half - 1)).sum())
