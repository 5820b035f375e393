"""Solvers behind one seam; the only room that imports OR-Tools."""

from flowcore.planning.solvers.executor import IN_TURN, Executor, Tasks
from flowcore.planning.solvers.linear import LinearProgram, LinearSolution, solve_lp, solve_mip
from flowcore.planning.solvers.min_cost_flow import Solution, solve
from flowcore.planning.solvers.potentials import UNREACHABLE, potentials

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
