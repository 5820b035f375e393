"""A round: one snapshot in, one plan out."""

from flowcore.rounds.constraining import under_constraints
from flowcore.rounds.plan import Left, Placement, RoundResult
from flowcore.rounds.round import Round, run_one_by_one, run_round

__all__ = ["Left", "Placement", "Round", "RoundResult", "run_one_by_one", "run_round", "under_constraints"]
