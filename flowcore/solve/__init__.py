"""Solvers behind one seam; the only room that imports OR-Tools."""

from flowcore.solve.linear import LinearProgram, LinearSolution, solve_relaxed, solve_whole
from flowcore.solve.min_cost_flow import Solution, solve
from flowcore.solve.potentials import UNREACHABLE, is_certified, potentials

__all__ = [
    "UNREACHABLE",
    "LinearProgram",
    "LinearSolution",
    "Solution",
    "is_certified",
    "potentials",
    "solve",
    "solve_relaxed",
    "solve_whole",
]
