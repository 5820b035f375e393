"""Conversions between types, sizes, and optional values.

Source: cel-spec langdef.md, "Standard Definitions"; cel-go cel/library.go (optional types).
"""

from __future__ import annotations

import math
import re

from flowcore.rules.devices.cel.evaluation import Evaluation
from flowcore.rules.devices.cel.functions.operators import checked
from flowcore.rules.devices.cel.functions.overloads import (
    ANY,
    BOOL,
    DOUBLE,
    INT,
    LIST,
    MAP,
    OPTIONAL,
    TEXT,
    TYPE,
    UINT,
    Overloads,
)
from flowcore.rules.devices.cel.problems import EvaluationError
from flowcore.rules.devices.cel.values import NONE, CelOptional, CelType, CelValue, Uint, type_name

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_DOUBLE = re.compile(r"[+-]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?")
_TRUE, _FALSE = ("true", "True", "TRUE", "t", "1"), ("false", "False", "FALSE", "f", "0")


def _size(_state: Evaluation, value: CelValue) -> CelValue:
    return len(value)


def _same(_state: Evaluation, value: CelValue) -> CelValue:
    return value


def _to_integer(kind: type) -> Overloads:
    def of_number(_state: Evaluation, value: CelValue) -> CelValue:
        if isinstance(value, float) and not math.isfinite(value):
            raise EvaluationError("integer overflow")
        return checked(int(value), kind)

    def of_text(_state: Evaluation, text: CelValue) -> CelValue:
        if _INTEGER.fullmatch(text) is None:
            raise EvaluationError(f"type conversion error from 'string' to '{type_name(kind(0))}'")
        return checked(int(text), kind)

    return {(INT,): of_number, (UINT,): of_number, (DOUBLE,): of_number, (TEXT,): of_text}


def _to_double(_state: Evaluation, value: CelValue) -> CelValue:
    if isinstance(value, str) and _DOUBLE.fullmatch(value) is None:
        raise EvaluationError("type conversion error from 'string' to 'double'")
    return float(value)


def _to_text(_state: Evaluation, value: CelValue) -> CelValue:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _to_bool(_state: Evaluation, text: CelValue) -> CelValue:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise EvaluationError("type conversion error from 'string' to 'bool'")


def _type_of(_state: Evaluation, value: CelValue) -> CelValue:
    return CelType(type_name(value))


def _some(_state: Evaluation, value: CelValue) -> CelValue:
    return CelOptional(has_value=True, value=value)


def _some_unless_zero(_state: Evaluation, value: CelValue) -> CelValue:
    is_zero = value is None or (isinstance(value, bool | int | float | str | list | dict) and not value)
    return NONE if is_zero else CelOptional(has_value=True, value=value)


def _value(_state: Evaluation, optional: CelValue) -> CelValue:
    if not optional.has_value:
        raise EvaluationError("optional.none() dereference")
    return optional.value


_SIZES: Overloads = {(TEXT,): _size, (LIST,): _size, (MAP,): _size}

GLOBALS: dict[str, Overloads] = {
    "size": _SIZES,
    "int": _to_integer(int),
    "uint": _to_integer(Uint),
    "double": {(INT,): _to_double, (UINT,): _to_double, (DOUBLE,): _to_double, (TEXT,): _to_double},
    "string": {(kind,): _to_text for kind in (BOOL, INT, UINT, TEXT)},
    "bool": {(BOOL,): _same, (TEXT,): _to_bool},
    "dyn": {(ANY,): _same},
    "type": {(ANY,): _type_of},
    "optional.of": {(ANY,): _some},
    "optional.none": {(): lambda _state: NONE},
    "optional.ofNonZeroValue": {(ANY,): _some_unless_zero},
}

MEMBERS: dict[str, Overloads] = {
    "size": _SIZES,
    "hasValue": {(OPTIONAL,): lambda _state, optional: optional.has_value},
    "value": {(OPTIONAL,): _value},
    # Evaluated apart, as their second argument may not be.
    "orValue": {(OPTIONAL, ANY): _value},
    "or": {(OPTIONAL, OPTIONAL): _value},
}

#: Types as values.
TYPES = {name: CelType(name) for name in (BOOL, INT, UINT, DOUBLE, TEXT, LIST, MAP, TYPE, "null_type")}
