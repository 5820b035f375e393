"""Linear programs, with and without whole numbers: OR-Tools' GLOP and CP-SAT behind one value.

Both are deterministic: GLOP is a simplex method on one thread, CP-SAT gets one thread, a seed and a limit in its own
deterministic time, never a wall clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ortools.linear_solver.python.model_builder_helper import (  # model_builder itself imports pandas: 0.3 s and 35 MB
    ModelBuilderHelper,
    ModelSolverHelper,
    SolveStatus,
    Variable,
)

from flowcore.cluster.arrays.snapshot import Int64s

Float64s = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LinearProgram:
    """Minimise ``costs @ x`` with ``lower <= A x <= upper`` and ``0 <= x <= most``; A in coordinates.

    Attributes:
        costs, variable_upper: float64[V].
        row_lower, row_upper: float64[Q], may be infinite.
        rows, columns: int64[Z]; coefficients: float64[Z].
    """

    costs: Float64s
    variable_upper: Float64s
    row_lower: Float64s
    row_upper: Float64s
    rows: Int64s
    columns: Int64s
    coefficients: Float64s

    def least_cost(self, duals: Float64s) -> int:
        """A cost that no solution in whole numbers goes below, whatever the duals are.

        Weak duality, with room for the errors of floats. Costs are whole numbers, none negative.

        Args:
            duals: float64[Q], of the rows.
        """
        duals = np.where(np.isfinite(np.where(duals > 0, self.row_lower, self.row_upper)), duals, 0.0)
        reduced = self.costs.copy()
        np.subtract.at(reduced, self.columns, self.coefficients * duals[self.rows])
        of_rows = duals * np.where(duals > 0, self.row_lower, np.where(duals < 0, self.row_upper, 0.0))
        of_columns = np.minimum(reduced, 0.0) * self.variable_upper
        paid = np.abs(self.coefficients * duals[self.rows]) * self.variable_upper[self.columns]
        error = 1e-11 * float(np.abs(of_rows).sum() + np.abs(of_columns).sum() + paid.sum()) + 1e-6
        least = float(of_rows.sum() + of_columns.sum()) - error
        return max(0, ceil(least)) if isfinite(least) else 0

    def with_rows(self, entries: Sequence[tuple[Int64s, Float64s]], upper: Sequence[float]) -> LinearProgram:
        """The program with more rows: each is at most so much. ``entries``: their columns and coefficients."""
        numbers = np.repeat(np.arange(len(entries)), [len(columns) for columns, _ in entries])
        return replace(
            self,
            row_lower=np.concatenate([self.row_lower, np.full(len(upper), -np.inf)]),
            row_upper=np.concatenate([self.row_upper, np.array(upper, dtype=np.float64)]),
            rows=np.concatenate([self.rows, len(self.row_upper) + numbers]),
            columns=np.concatenate([self.columns, *(columns for columns, _ in entries)]),
            coefficients=np.concatenate([self.coefficients, *(each for _, each in entries)]),
        )


@dataclass(frozen=True, slots=True)
class LinearSolution:
    """A solution of a program.

    Attributes:
        values: float64[V].
        duals: float64[Q] of the rows where the program is continuous, else empty.
        optimal: whether the solver says that none is better.
    """

    values: Float64s
    duals: Float64s
    optimal: bool = True


def solve_lp(program: LinearProgram) -> LinearSolution | None:
    """The optimum in fractions, with duals; None where the solver found none."""
    solver = ModelSolverHelper("glop")
    # Its last check counts in absolute numbers: where costs are in the millions it rejects the optimum that it found.
    solver.set_solver_specific_parameters("change_status_to_imprecise:false")
    solver.solve(_load(program, integer=False))
    if solver.status() != SolveStatus.OPTIMAL:
        return None
    return LinearSolution(values=_vector(solver.variable_values()), duals=_vector(solver.dual_values()))


def solve_mip(
    program: LinearProgram, *, deterministic_time: float, seed: int, hint: Float64s, presolve: bool = True
) -> LinearSolution | None:
    """The best whole numbers found.

    Args:
        deterministic_time: limit in CP-SAT's deterministic time, roughly seconds on one core.
        hint: float64[V], where to start from.
        presolve: whether the program is made simpler first; programs of some hundred columns are solved faster as is.
    """
    solver = ModelSolverHelper("sat")
    solver.set_solver_specific_parameters(
        f"num_workers:1 random_seed:{seed % 2**31} max_deterministic_time:{deterministic_time:.6f} "
        "cp_model_probing_level:0 linearization_level:2 "
        "add_lp_constraints_lazily:false "
        f"{'' if presolve else 'cp_model_presolve:false symmetry_level:0 '}"
        "catch_sigint_signal:false"  # its handler swallows Ctrl-C, and leaves the process with the system's default
    )
    model = _load(program, integer=True)
    for column, value in enumerate(hint.tolist()):
        model.add_hint(column, value)
    solver.solve(model)
    if solver.status() not in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE):
        return None
    optimal = solver.status() == SolveStatus.OPTIMAL
    return LinearSolution(values=np.rint(_vector(solver.variable_values())), duals=np.zeros(0), optimal=optimal)


def _load(program: LinearProgram, *, integer: bool) -> Any:
    """The program as OR-Tools wants it: arrays of columns, and one call for each row."""
    model: Any = ModelBuilderHelper()  # its stubs want arrays of Python's types
    count = len(program.costs)
    model.add_var_array_with_bounds(np.zeros(count), program.variable_upper, np.full(count, integer), "")
    model.set_objective_coefficients(list(range(count)), program.costs.tolist())
    variables = [Variable(model, column) for column in range(count)]
    order = np.argsort(program.rows, kind="stable")
    columns, coefficients = program.columns[order].tolist(), program.coefficients[order].tolist()
    starts = np.searchsorted(program.rows[order], np.arange(len(program.row_lower) + 1)).tolist()
    for lower, upper, (start, end) in zip(
        program.row_lower.tolist(), program.row_upper.tolist(), pairwise(starts), strict=True
    ):
        row = model.add_linear_constraint()
        model.set_constraint_lower_bound(row, lower)
        model.set_constraint_upper_bound(row, upper)
        model.add_terms_to_constraint(
            row, [variables[column] for column in columns[start:end]], coefficients[start:end]
        )
    return model


def _vector(values: Any) -> Float64s:
    return np.asarray(values, dtype=np.float64).ravel()
