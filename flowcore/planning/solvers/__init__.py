"""Solvers behind one seam; the only room that imports OR-Tools."""

from flowcore.planning.solvers.linear import LinearProgram, LinearSolution, solve_lp, solve_mip
from flowcore.planning.solvers.min_cost_flow import Solution, solve
from flowcore.planning.solvers.potentials import UNREACHABLE, potentials

__all__ = [
    "UNREACHABLE",
    "LinearProgram",
    "LinearSolution",
    "Solution",
    "potentials",
    "solve",
    "solve_lp",
    "solve_mip",
]
