"""Solvers behind one seam; the only room that imports OR-Tools."""

from flowcore.solve.min_cost_flow import Solution, solve

__all__ = ["Solution", "solve"]
