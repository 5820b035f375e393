"""What is learnt from pods that are done: how much longer they took for their neighbours and their machines."""

from flowcore.learning.estimates import Estimates, with_estimates
from flowcore.learning.run_history import Run, RunHistory

__all__ = ["Estimates", "Run", "RunHistory", "with_estimates"]
