"""Gangs left aside."""

from __future__ import annotations

from flowcore.planning.problem.demands.atomic_groups import no_atomic_groups
from flowcore.planning.problem.passes.round_pass import Pass
from flowcore.planning.problem.problem import Problem


class WithoutAtomicGroups(Pass):
    """Every pod is placed by itself, whatever gang it is in."""

    def apply(self, problem: Problem) -> Problem:
        """The same demands without groups."""
        return problem.with_demands(problem.demands, no_atomic_groups(problem.demands))
