"""Linear programs, with and without whole numbers: OR-Tools' GLOP and CP-SAT behind one value.

Both are deterministic: GLOP is a simplex method on one thread, CP-SAT gets one thread, a seed and a limit in its own
deterministic time, never a wall clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from ortools.linear_solver import pywraplp

from flowcore.model.snapshot import Int64s

Float64s = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LinearProgram:
    """Minimise ``costs @ x`` with ``lower <= A x <= upper`` and ``0 <= x <= most``; A in coordinates.

    Attributes:
        costs, most: float64[V].
        lower, upper: float64[Q], may be infinite.
        rows, columns: int64[Z]; coefficients: float64[Z].
    """

    costs: Float64s
    most: Float64s
    lower: Float64s
    upper: Float64s
    rows: Int64s
    columns: Int64s
    coefficients: Float64s


@dataclass(frozen=True, slots=True)
class LinearSolution:
    """Values float64[V]; duals float64[Q] of the rows where the program is continuous, else empty."""

    values: Float64s
    duals: Float64s
    optimal: bool


def solve_relaxed(program: LinearProgram) -> LinearSolution | None:
    """The optimum in fractions, with duals; None where the solver found none."""
    solver = pywraplp.Solver.CreateSolver("GLOP")
    variables, constraints = _load(solver, program, integer=False)
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return None
    return LinearSolution(
        values=np.array([variable.solution_value() for variable in variables]),
        duals=np.array([constraint.dual_value() for constraint in constraints]),
        optimal=True,
    )


def solve_whole(program: LinearProgram, *, work: float, seed: int, hint: Float64s) -> LinearSolution | None:
    """The best whole numbers found.

    Args:
        work: limit in CP-SAT's deterministic time, roughly seconds on one core.
        hint: float64[V], where to start from.
    """
    solver = pywraplp.Solver.CreateSolver("SAT")
    solver.SetSolverSpecificParametersAsString(
        f"num_workers:1 random_seed:{seed % 2**31} max_deterministic_time:{work:.6f} cp_model_probing_level:0 "
        "linearization_level:2"
    )
    variables, _ = _load(solver, program, integer=True)
    solver.SetHint(variables, hint.tolist())
    status = solver.Solve()
    if status not in (pywraplp.Solver.OPTIMAL, pywraplp.Solver.FEASIBLE):
        return None
    return LinearSolution(
        values=np.rint([variable.solution_value() for variable in variables]),
        duals=np.zeros(0),
        optimal=status == pywraplp.Solver.OPTIMAL,
    )


def _load(
    solver: pywraplp.Solver, program: LinearProgram, *, integer: bool
) -> tuple[list[pywraplp.Variable], list[pywraplp.Constraint]]:
    variables = [solver.Var(0, most, integer, "") for most in program.most.tolist()]
    objective = solver.Objective()
    for variable, cost in zip(variables, program.costs.tolist(), strict=True):
        objective.SetCoefficient(variable, cost)
    objective.SetMinimization()
    constraints = [
        solver.Constraint(lower, upper)
        for lower, upper in zip(program.lower.tolist(), program.upper.tolist(), strict=True)
    ]
    for row, column, coefficient in zip(
        program.rows.tolist(), program.columns.tolist(), program.coefficients.tolist(), strict=True
    ):
        constraints[row].SetCoefficient(variables[column], coefficient)
    return variables, constraints
