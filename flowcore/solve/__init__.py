"""Solvers behind one seam; the only room that imports OR-Tools."""

from flowcore.solve.executor import IN_TURN, Executor, Tasks
from flowcore.solve.linear import LinearProgram, LinearSolution, solve_lp, solve_mip
from flowcore.solve.min_cost_flow import Solution, solve
from flowcore.solve.potentials import UNREACHABLE, potentials

__all__ = [
    "IN_TURN",
    "UNREACHABLE",
    "Executor",
    "LinearProgram",
    "LinearSolution",
    "Solution",
    "Tasks",
    "potentials",
    "solve",
    "solve_lp",
    "solve_mip",
]
