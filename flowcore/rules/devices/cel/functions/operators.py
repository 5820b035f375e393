"""Operators.

Source: cel-spec langdef.md, "Standard Definitions". Integers are of 64 bits, and what leaves them is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from flowcore.rules.devices.cel.evaluation import Evaluation
from flowcore.rules.devices.cel.problems import EvaluationError, no_overload
from flowcore.rules.devices.cel.values import (
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    CelQuantity,
    CelValue,
    CelVersion,
    Uint,
    alike_numbers,
    has_key,
    is_number,
)

#: Types whose values are in order, beside numbers.
_ORDERED = (str, bool)


def checked(value: int, kind: type) -> CelValue:
    """An integer of a type (``int`` or ``Uint``).

    Raises:
        EvaluationError: it does not fit.
    """
    if kind is Uint:
        if not 0 <= value <= MAX_UINT:
            raise EvaluationError("unsigned integer overflow")
        return Uint(value)
    if not MIN_INT <= value <= MAX_INT:
        raise EvaluationError("integer overflow")
    return value


def _add(state: Evaluation, left: CelValue, right: CelValue) -> CelValue:
    if type(left) is type(right):
        if type(left) in (str, list):
            state.make(len(left) + len(right))
            return left + right
        if type(left) is float:
            return left + right
        if type(left) in (int, Uint):
            return checked(int(left) + int(right), type(left))
    raise no_overload("_+_")


def _subtract(_state: Evaluation, left: CelValue, right: CelValue) -> CelValue:
    return _arithmetic("_-_", left, right, lambda a, b: a - b, lambda a, b: a - b)


def _multiply(_state: Evaluation, left: CelValue, right: CelValue) -> CelValue:
    return _arithmetic("_*_", left, right, lambda a, b: a * b, lambda a, b: a * b)


def _divide(_state: Evaluation, left: CelValue, right: CelValue) -> CelValue:
    return _arithmetic("_/_", left, right, _quotient, _float_quotient)


def _modulo(_state: Evaluation, left: CelValue, right: CelValue) -> CelValue:
    if type(left) is float:
        raise no_overload("_%_")
    return _arithmetic("_%_", left, right, _remainder, _float_quotient)


def _arithmetic(
    name: str,
    left: CelValue,
    right: CelValue,
    of_integers: Callable[[int, int], int],
    of_floats: Callable[[float, float], float],
) -> CelValue:
    if type(left) is type(right):
        if type(left) is float:
            return of_floats(left, right)
        if type(left) in (int, Uint):
            return checked(of_integers(int(left), int(right)), type(left))
    raise no_overload(name)


def _quotient(left: int, right: int) -> int:
    if not right:
        raise EvaluationError("division by zero")
    # Towards zero, where Python rounds down.
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


def _remainder(left: int, right: int) -> int:
    if not right:
        raise EvaluationError("modulus by zero")
    return left - right * _quotient(left, right)


def _float_quotient(left: float, right: float) -> float:
    if right:
        return left / right
    return math.nan if not left or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1, right)


def _negate(_state: Evaluation, value: CelValue) -> CelValue:
    if type(value) is float:
        return -value
    if type(value) is int:
        return checked(-value, int)
    raise no_overload("-_")


def _not(_state: Evaluation, value: CelValue) -> CelValue:
    if type(value) is not bool:
        raise no_overload("!_")
    return not value


def _comparison(name: str, compare: Callable[[CelValue, CelValue], bool]) -> Callable[..., CelValue]:
    def evaluate(state: Evaluation, left: CelValue, right: CelValue) -> CelValue:
        state.compare(left, right)
        if is_number(left) and is_number(right):
            return bool(compare(*alike_numbers(left, right)))
        if type(left) is type(right) and type(left) in _ORDERED:
            return bool(compare(left, right))
        raise no_overload(name)

    return evaluate


def _equals(state: Evaluation, left: CelValue, right: CelValue) -> CelValue:
    # In Kubernetes a quantity or a version is compared with its like alone, and with no quantity that was computed.
    if isinstance(left, CelQuantity | CelVersion) and (
        type(left) is not type(right) or (isinstance(right, CelQuantity) and right.is_sum)
    ):
        raise no_overload("_==_")
    return state.equals(left, right)


def _in(state: Evaluation, value: CelValue, collection: CelValue) -> CelValue:
    if isinstance(collection, dict):
        return has_key(collection, value)
    if isinstance(collection, list):
        return state.contains(collection, value)
    raise no_overload("@in")


#: Operator as the syntax tree names it -> function of an evaluation and the operands.
OPERATORS: dict[str, Callable[..., CelValue]] = {
    "_+_": _add,
    "_-_": _subtract,
    "_*_": _multiply,
    "_/_": _divide,
    "_%_": _modulo,
    "-_": _negate,
    "!_": _not,
    "@in": _in,
    "_==_": _equals,
    "_!=_": lambda state, left, right: not _equals(state, left, right),
    "_<_": _comparison("_<_", lambda a, b: a < b),
    "_<=_": _comparison("_<=_", lambda a, b: a <= b),
    "_>_": _comparison("_>_", lambda a, b: a > b),
    "_>=_": _comparison("_>=_", lambda a, b: a >= b),
}
