"""A round: one snapshot in, one plan out."""

from flowcore.planning.drawn_networks.compile_networks import with_network_rules
from flowcore.planning.problem.passes.compile_constraints import compile_constraints
from flowcore.planning.problem.result import Eviction, Placement, RoundResult, Unplaced
from flowcore.planning.round.round import Round, run_one_by_one, run_round

__all__ = [
    "Eviction",
    "Placement",
    "Round",
    "RoundResult",
    "Unplaced",
    "compile_constraints",
    "run_one_by_one",
    "run_round",
    "with_network_rules",
]
