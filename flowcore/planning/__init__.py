"""A round: one snapshot in, one plan out."""

from flowcore.planning.round import Round, run_one_by_one, run_round
from flowcore.problem.passes.compile_constraints import compile_constraints
from flowcore.problem.result import Eviction, Placement, RoundResult, Unplaced

__all__ = [
    "Eviction",
    "Placement",
    "Round",
    "RoundResult",
    "Unplaced",
    "compile_constraints",
    "run_one_by_one",
    "run_round",
]
