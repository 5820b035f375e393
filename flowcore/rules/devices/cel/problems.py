"""What is wrong with an expression: the value that callers get, and the errors by which it comes about."""

from __future__ import annotations

import msgspec


class CelProblem(msgspec.Struct, frozen=True, gc=False):
    """Why an expression says nothing of a device.

    Attributes:
        stage: ``compile``, the same for all devices, or ``runtime``.
        text: what is wrong.
        is_limit: nothing is wrong with it: it costs more than is spent on it here.
    """

    stage: str
    text: str
    is_limit: bool = False


class ExpressionError(Exception):
    """An expression cannot be compiled."""


class EvaluationError(Exception):
    """A part of an expression has no value. ``&&`` and ``||`` do without it if the other side decides."""


class CostExceededError(Exception):
    """An evaluation costs more than it may; nothing does without that."""


def no_overload(function: str) -> EvaluationError:
    """The error of an operation on values that it is not for."""
    return EvaluationError(f"no such overload: {function}")
