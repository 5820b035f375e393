"""Functions of lists and sets.

Source: apiserver pkg/cel/library/lists.go; cel-go ext/lists.go, ext/sets.go.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from itertools import pairwise

from flowcore.rules.devices.cel.evaluation import Evaluation
from flowcore.rules.devices.cel.functions.operators import OPERATORS
from flowcore.rules.devices.cel.functions.overloads import ANY, INT, LIST, Overloads
from flowcore.rules.devices.cel.problems import EvaluationError, no_overload
from flowcore.rules.devices.cel.values import CelValue

_LESS = OPERATORS["_<_"]


def _is_sorted(state: Evaluation, values: CelValue) -> CelValue:
    return not any(_LESS(state, second, first) for first, second in pairwise(values))


def _sum(state: Evaluation, values: CelValue) -> CelValue:
    state.spend(len(values))
    total: CelValue = values[0] if values else 0
    for value in values[1:]:
        total = OPERATORS["_+_"](state, total, value)
    return total


def _extreme(name: str, replaces: Callable[..., bool]) -> Callable[..., CelValue]:
    def evaluate(state: Evaluation, values: CelValue) -> CelValue:
        if not values:
            raise EvaluationError(f"{name} called on empty list")
        best = values[0]
        for value in values[1:]:
            if replaces(state, value, best):
                best = value
        return best

    return evaluate


def _index(state: Evaluation, values: CelValue, wanted: CelValue) -> CelValue:
    return next((place for place, value in enumerate(values) if state.equals(value, wanted)), -1)


def _last_index(state: Evaluation, values: CelValue, wanted: CelValue) -> CelValue:
    return next((place for place in reversed(range(len(values))) if state.equals(values[place], wanted)), -1)


def _slice(_state: Evaluation, values: CelValue, start: CelValue, end: CelValue) -> CelValue:
    if not 0 <= start <= end <= len(values):
        raise EvaluationError(f"cannot slice({start}, {end}), list has length {len(values)}")
    return values[start:end]


def _flatten(state: Evaluation, values: CelValue, depth: CelValue = 1) -> CelValue:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    flat = list[CelValue]()
    # Lists may nest deeper than Python's own stack goes.
    waiting = [iter(values)]
    while waiting:
        for value in waiting[-1]:
            state.spend(1)
            if isinstance(value, list) and len(waiting) <= depth:
                waiting.append(iter(value))
                break
            flat.append(value)
        else:
            waiting.pop()
    return flat


def _distinct(state: Evaluation, values: CelValue) -> CelValue:
    distinct = list[CelValue]()
    for value in values:
        if not state.contains(distinct, value):
            distinct.append(value)
    return distinct


def _sorted(state: Evaluation, values: CelValue) -> CelValue:
    state.spend(len(values))

    def compare(left: CelValue, right: CelValue) -> int:
        if type(left) is not type(right):
            raise no_overload("sort")
        return -1 if _LESS(state, left, right) else int(_LESS(state, right, left))

    return sorted(values, key=cmp_to_key(compare))


def _range(state: Evaluation, count: CelValue) -> CelValue:
    count = max(count, 0)
    state.make(count)
    state.spend(count)  # each element is an object of its own
    return list(range(count))


def _contains_all(state: Evaluation, values: CelValue, parts: CelValue) -> CelValue:
    state.spend(len(parts))
    return all(state.contains(values, part) for part in parts)


def _contains_any(state: Evaluation, values: CelValue, parts: CelValue) -> CelValue:
    state.spend(len(parts))
    return any(state.contains(values, part) for part in parts)


def _are_equivalent(state: Evaluation, left: CelValue, right: CelValue) -> CelValue:
    return _contains_all(state, left, right) and _contains_all(state, right, left)


GLOBALS: dict[str, Overloads] = {
    "lists.range": {(INT,): _range},
    "sets.contains": {(LIST, LIST): _contains_all},
    "sets.intersects": {(LIST, LIST): _contains_any},
    "sets.equivalent": {(LIST, LIST): _are_equivalent},
}

MEMBERS: dict[str, Overloads] = {
    "isSorted": {(LIST,): _is_sorted},
    "sum": {(LIST,): _sum},
    "min": {(LIST,): _extreme("min", _LESS)},
    "max": {(LIST,): _extreme("max", lambda state, value, best: _LESS(state, best, value))},
    "indexOf": {(LIST, ANY): _index},
    "lastIndexOf": {(LIST, ANY): _last_index},
    "slice": {(LIST, INT, INT): _slice},
    "flatten": {(LIST,): _flatten, (LIST, INT): _flatten},
    "distinct": {(LIST,): _distinct},
    "sort": {(LIST,): _sorted},
    "reverse": {(LIST,): lambda _state, values: values[::-1]},
}
