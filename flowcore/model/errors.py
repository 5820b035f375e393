"""The errors of reading a cluster. Each carries its data as fields."""

from __future__ import annotations


class ModelError(ValueError):
    """Something in an object cannot be read.

    Attributes:
        field: path inside the object, as ``kubectl explain`` would write it.
        problem: what is wrong with it, a phrase without the path.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.field = field
        self.problem = problem


class PolicyError(ModelError):
    """A FlowSchedulingPolicy that cannot be put in force."""
