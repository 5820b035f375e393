"""Passes: what is done to a problem before it is solved, and to its plan after."""

from flowcore.problem.passes.admitted_demands import AdmittedDemands
from flowcore.problem.passes.compile_constraints import CompileConstraints
from flowcore.problem.passes.compile_kinds import CompileKinds
from flowcore.problem.passes.constraint_gangs import FormConstraintGangs
from flowcore.problem.passes.gang_domains import RestrictToGangDomains
from flowcore.problem.passes.queue_limits import KeepQueueLimits
from flowcore.problem.passes.replacements import PlaceReplacements
from flowcore.problem.passes.round_pass import Pass, apply_all, invert_all
from flowcore.problem.passes.without_atomic_groups import WithoutAtomicGroups

__all__ = [
    "AdmittedDemands",
    "CompileConstraints",
    "CompileKinds",
    "FormConstraintGangs",
    "KeepQueueLimits",
    "Pass",
    "PlaceReplacements",
    "RestrictToGangDomains",
    "WithoutAtomicGroups",
    "apply_all",
    "invert_all",
]
