"""What a round does to a problem before it is solved, and to the plan after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.problem import Problem


class Pass(Protocol):
    """One change of the problem. An object serves one round: ``invert`` may need what ``apply`` found."""

    def apply(self, problem: Problem) -> Problem:
        """The problem that is solved in place of this one."""
        ...

    def invert(self, candidate: Candidate) -> Candidate:
        """A candidate of the changed problem as one of the problem before; here: it is one already."""
        return candidate


def apply_all(passes: Sequence[Pass], problem: Problem) -> Problem:
    """The problem after each pass in turn."""
    for round_pass in passes:
        problem = round_pass.apply(problem)
    return problem


def invert_all(passes: Sequence[Pass], candidate: Candidate) -> Candidate:
    """A candidate of the last problem as one of the first."""
    for round_pass in reversed(passes):
        candidate = round_pass.invert(candidate)
    return candidate
