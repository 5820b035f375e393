"""What one evaluation of an expression knows: its variables, and what it may still cost.

Source: cel-go interpreter/runtimecost.go. Costs are counted as there, with these simplifications: each part of an
expression costs one when it is evaluated, each call a tenth of the length of its texts and lists, whatever the
function, and what it makes as much again where that may be longer. So units bound both time and memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flowcore.rules.devices.cel.problems import CostExceededError, EvaluationError
from flowcore.rules.devices.cel.values import (
    CelOptional,
    CelValue,
    alike_numbers,
    has_key,
    is_number,
    length,
    type_name,
)

#: What an expression may cost for one device (CELSelectorExpressionMaxCost).
MAX_COST = 1_000_000
#: Longest text or list that an expression may make; the API server accepts none that could make a longer one.
MAX_SIZE = MAX_COST
#: Characters or elements that a unit pays for.
_SIZE_A_UNIT = 10


class Evaluation:
    """One evaluation.

    Args:
        variables: by name; macros add theirs.
        max_cost: of all that is evaluated.

    Attributes:
        left: what it may still cost; below zero if it cost too much.
    """

    __slots__ = ("left", "variables")

    def __init__(self, variables: dict[str, CelValue], max_cost: int = MAX_COST) -> None:
        self.variables = variables
        self.left = max_cost

    def spend(self, cost: int) -> None:
        """Takes note of work.

        Raises:
            CostExceededError: it is too much.
        """
        self.left -= cost
        if self.left < 0:
            raise CostExceededError("operation cancelled: actual cost limit exceeded")

    def spend_call(self, values: Iterable[CelValue]) -> None:
        """Takes note of a call with these arguments."""
        self.spend(sum(map(length, values)) // _SIZE_A_UNIT)

    def make(self, size: int) -> None:
        """Takes note of a text or a list of this length that is about to be made.

        Whatever makes one that may be longer than all its arguments says so here, before it does.

        Raises:
            EvaluationError: it would be too long.
            CostExceededError: it is too much.
        """
        if size > MAX_SIZE:
            raise EvaluationError(f"a text or a list would have a length of more than {MAX_SIZE}")
        self.spend(size // _SIZE_A_UNIT)

    def compare(self, left: CelValue, right: CelValue) -> None:
        """Takes note of a comparison of two values without what is in them."""
        self.spend(1 + min(length(left), length(right)) // _SIZE_A_UNIT)

    def equals(self, left: CelValue, right: CelValue) -> bool:
        """Whether two values are equal: numbers by value, others only if they are of one type."""
        # Values may nest deeper than Python's own stack goes.
        waiting: list[Iterator[tuple[CelValue, CelValue]]] = [iter(((left, right),))]
        while waiting:
            for first, second in waiting[-1]:
                inside = self._inside(first, second)
                if inside is False:
                    return False
                if inside is not True:
                    waiting.append(inside)
                    break
            else:
                waiting.pop()
        return True

    def _inside(self, left: CelValue, right: CelValue) -> Iterator[tuple[CelValue, CelValue]] | bool:
        """Whether two values are equal, or what has to be equal for that."""
        self.compare(left, right)
        if is_number(left) and is_number(right):
            first, second = alike_numbers(left, right)
            return bool(first == second)
        if isinstance(left, list) and isinstance(right, list):
            return len(left) == len(right) and zip(left, right, strict=True)
        if isinstance(left, dict) and isinstance(right, dict):
            self.spend(len(left))
            is_alike = len(left) == len(right) and all(has_key(right, key) for key in left)
            return is_alike and ((value, right[key]) for key, value in left.items())
        if isinstance(left, CelOptional) and isinstance(right, CelOptional):
            return left.has_value == right.has_value and iter(((left.value, right.value),))
        return type_name(left) == type_name(right) and bool(left == right)

    def contains(self, values: Iterable[CelValue], value: CelValue) -> bool:
        """Whether one of some values is equal to a value."""
        return any(self.equals(each, value) for each in values)
