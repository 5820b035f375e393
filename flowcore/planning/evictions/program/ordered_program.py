"""An integer program with several sums to minimise, the first one first, as keys of plans are compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from flowcore.planning.solvers import LinearProgram, solve_mip
from flowcore.planning.solvers.linear import Float64s

WeightedColumns = list[tuple[int, float]]
#: Sums are one objective as long as it stays below this: the solver knows no larger numbers.
_LARGEST = 2.0**44


class OrderedProgram:
    """Columns of whole numbers from 0, and rows.

    Attributes:
        most: of each column.
        known: a value of each column: together they are what is known.
    """

    def __init__(self, sums: int) -> None:
        """``sums``: how many there are."""
        self._sums: list[dict[int, float]] = [{} for _ in range(sums)]
        self.most: list[float] = []
        self.known: list[float] = []
        self._entries: list[tuple[int, int, float]] = []
        self._lower: list[float] = []
        self._upper: list[float] = []

    def __len__(self) -> int:
        return len(self.most)

    def column(self, most: float, known: float, costs: Mapping[int, float] | None = None) -> int:
        """A new column; ``costs``: by the number of a sum."""
        for number, cost in (costs or {}).items():
            self._sums[number][len(self.most)] = cost
        self.most.append(most)
        self.known.append(known)
        return len(self.most) - 1

    def add_cost(self, column: int, number: int, cost: float) -> None:
        """A column costs so much more in a sum."""
        self._sums[number][column] = self._sums[number].get(column, 0.0) + cost

    def bind(self, terms: Sequence[tuple[int, float]], upper: float) -> None:
        """A new row where anything may pass it."""
        if sum(max(0.0, amount) * self.most[column] for column, amount in terms) > upper:
            self.row(terms, upper)

    def row(self, terms: Iterable[tuple[int, float]], upper: float, lower: float = -np.inf) -> None:
        """A new row."""
        self._entries += [(len(self._upper), column, amount) for column, amount in terms if amount]
        self._lower.append(lower)
        self._upper.append(upper)

    def solve(self, *, work: float, seed: int) -> Float64s | None:
        """Values of the columns, the best that are found; None: none are found.

        Args:
            work: CP-SAT's deterministic time, roughly seconds.
        """
        objectives = self._objectives()
        known = np.array(self.known)
        for costs in objectives:
            share = work / len(objectives)
            solved = solve_mip(self._program(costs), deterministic_time=share, seed=seed, hint=known, presolve=False)
            if solved is None or not np.isfinite(solved.values).all():
                return None
            known = solved.values
            self.row(costs.items(), sum(cost * known[column] for column, cost in costs.items()))
        return known

    def _objectives(self) -> list[dict[int, float]]:
        """Weighted sums: each sum counts for more than all that come after it in its objective."""
        objectives: list[dict[int, float]] = [{}]
        weight = 1.0
        for costs in reversed(self._sums):
            spread = 1 + sum(abs(cost) * self.most[column] for column, cost in costs.items())
            if weight * spread > _LARGEST:
                objectives.insert(0, {})
                weight = 1.0
            for column, cost in costs.items():
                objectives[0][column] = objectives[0].get(column, 0.0) + cost * weight
            weight *= spread
        return [each for each in objectives if each]

    def _program(self, costs: Mapping[int, float]) -> LinearProgram:
        rows, columns, amounts = zip(*self._entries, strict=True) if self._entries else ((), (), ())
        return LinearProgram(
            np.array([costs.get(column, 0.0) for column in range(len(self))]),
            np.array(self.most),
            np.array(self._lower),
            np.array(self._upper),
            np.array(rows, dtype=np.int64),
            np.array(columns, dtype=np.int64),
            np.array(amounts, dtype=np.float64),
        )
