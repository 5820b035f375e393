"""Functions of quantities and versions.

Source: apiserver pkg/cel/library (quantity.go, semverlib.go).
"""

from __future__ import annotations

from collections.abc import Callable

from flowcore.model.errors import ModelError
from flowcore.model.quantities import NANO, nanos
from flowcore.rules.devices.cel.evaluation import Evaluation
from flowcore.rules.devices.cel.functions.overloads import BOOL, INT, QUANTITY, TEXT, VERSION, Overloads
from flowcore.rules.devices.cel.problems import EvaluationError
from flowcore.rules.devices.cel.values import MAX_INT, MIN_INT, CelQuantity, CelValue, CelVersion, parse_version


def _quantity(_state: Evaluation, text: CelValue) -> CelValue:
    try:
        return CelQuantity(nanos(text))
    except ModelError as error:
        raise EvaluationError(error.problem) from None


def _is_quantity(_state: Evaluation, text: CelValue) -> CelValue:
    try:
        nanos(text)
    except ModelError:
        return False
    return True


def _is_whole(_state: Evaluation, quantity: CelValue) -> CelValue:
    return quantity.nanos % NANO == 0 and MIN_INT <= quantity.nanos // NANO <= MAX_INT


def _to_whole(state: Evaluation, quantity: CelValue) -> CelValue:
    if not _is_whole(state, quantity):
        raise EvaluationError("cannot convert value to integer")
    return quantity.nanos // NANO


def _sum_of(sign: int) -> Overloads:
    return {
        (QUANTITY, QUANTITY): lambda _state, left, right: CelQuantity(left.nanos + sign * right.nanos, is_sum=True),
        (QUANTITY, INT): lambda _state, left, right: CelQuantity(left.nanos + sign * right * NANO, is_sum=True),
    }


def _version(state: Evaluation, text: CelValue, normalize: CelValue = None) -> CelValue:
    version = _parse(state, text, normalize=normalize is True)
    if version is None:
        raise EvaluationError(f'"{text}" is not a semantic version')
    return version


def _is_version(state: Evaluation, text: CelValue, normalize: CelValue = None) -> CelValue:
    return _parse(state, text, normalize=normalize is True) is not None


def _parse(state: Evaluation, text: str, *, normalize: bool) -> CelVersion | None:
    """A version. Normalizing takes off a "v" and leading zeros, and fills up what is missing."""
    state.spend(text.count("."))  # each part is an object of its own
    if not normalize:
        return parse_version(text)
    parts = text.removeprefix("v").split(".", 2)
    for place, part in enumerate(parts):
        if len(part) > 1:
            bare = part.lstrip("0")
            parts[place] = bare if bare[:1].isdecimal() and bare[:1].isascii() else f"0{bare}"
    if len(parts) < 3 and any(mark in parts[-1] for mark in "+-"):
        return None
    return parse_version(".".join((*parts, "0", "0")[:3]))


def _compared(of_order: Callable[[int], CelValue]) -> Overloads:
    """A comparison of quantities and of versions: a function of -1, 0 or 1."""
    return {
        (QUANTITY, QUANTITY): lambda _state, left, right: of_order(_order(left.nanos, right.nanos)),
        (VERSION, VERSION): lambda _state, left, right: of_order(_order(left.order, right.order)),
    }


def _order(left: CelValue, right: CelValue) -> int:
    return int(left > right) - int(left < right)


GLOBALS: dict[str, Overloads] = {
    "quantity": {(TEXT,): _quantity},
    "isQuantity": {(TEXT,): _is_quantity},
    "sign": {(QUANTITY,): lambda _state, quantity: _order(quantity.nanos, 0)},
    "semver": {(TEXT,): _version, (TEXT, BOOL): _version},
    "isSemver": {(TEXT,): _is_version, (TEXT, BOOL): _is_version},
}

MEMBERS: dict[str, Overloads] = {
    "compareTo": _compared(lambda order: order),
    "isGreaterThan": _compared(lambda order: order > 0),
    "isLessThan": _compared(lambda order: order < 0),
    "asApproximateFloat": {(QUANTITY,): lambda _state, quantity: quantity.nanos / NANO},
    "asInteger": {(QUANTITY,): _to_whole},
    "isInteger": {(QUANTITY,): _is_whole},
    "add": _sum_of(1),
    "sub": _sum_of(-1),
    "major": {(VERSION,): lambda _state, version: version.major},
    "minor": {(VERSION,): lambda _state, version: version.minor},
    "patch": {(VERSION,): lambda _state, version: version.patch},
}
