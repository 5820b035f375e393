"""Passes: what is done to a problem before it is solved, and to its plan after."""

from flowcore.planning.problem.passes.admitted_demands import AdmittedDemands
from flowcore.planning.problem.passes.compile_constraints import CompileConstraints
from flowcore.planning.problem.passes.compile_workload_kinds import CompileWorkloadKinds
from flowcore.planning.problem.passes.constraint_gangs import FormConstraintGangs
from flowcore.planning.problem.passes.gang_domains import RestrictToGangDomains
from flowcore.planning.problem.passes.queue_limits import KeepQueueLimits
from flowcore.planning.problem.passes.replacements import PlaceReplacements
from flowcore.planning.problem.passes.round_pass import Pass, apply_all, invert_all
from flowcore.planning.problem.passes.without_atomic_groups import WithoutAtomicGroups

__all__ = [
    "AdmittedDemands",
    "CompileConstraints",
    "CompileWorkloadKinds",
    "FormConstraintGangs",
    "KeepQueueLimits",
    "Pass",
    "PlaceReplacements",
    "RestrictToGangDomains",
    "WithoutAtomicGroups",
    "apply_all",
    "invert_all",
]
