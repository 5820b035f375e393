"""What is learnt from pods that are done: how much longer they took for their neighbours and their machines."""

from flowcore.cluster.learning.estimates import Estimates, with_estimates
from flowcore.cluster.learning.observed_pods import RunReader, learnt_costs, machine_label, work_of
from flowcore.cluster.learning.run_history import Run, RunHistory

__all__ = [
    "Estimates",
    "Run",
    "RunHistory",
    "RunReader",
    "learnt_costs",
    "machine_label",
    "with_estimates",
    "work_of",
]
