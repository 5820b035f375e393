"""What one evaluation of an expression knows: its variables, and what it may still cost.

Source: cel-go interpreter/runtimecost.go. Costs are counted as there, with these simplifications: each call costs one
and a tenth of the length of its texts and lists, whatever the function.
"""

from __future__ import annotations

from collections.abc import Iterable

from flowcore.rules.devices.cel.problems import CostExceededError
from flowcore.rules.devices.cel.values import CelOptional, CelValue, alike_numbers, has_key, is_number, type_name

#: What an expression may cost for one device (CELSelectorExpressionMaxCost).
MAX_COST = 1_000_000
#: Longest text or list that an expression may make; the API server accepts none that could make a longer one.
MAX_SIZE = MAX_COST


class Evaluation:
    """One evaluation.

    Args:
        variables: by name; macros add theirs.
        max_cost: of all that is evaluated.
    """

    __slots__ = ("_left", "variables")

    def __init__(self, variables: dict[str, CelValue], max_cost: int = MAX_COST) -> None:
        self.variables = variables
        self._left = max_cost

    @property
    def left(self) -> int:
        """What it may still cost; below zero if it cost too much."""
        return self._left

    def spend(self, cost: int) -> None:
        """Takes note of work.

        Raises:
            CostExceededError: it is too much.
        """
        self._left -= cost
        if self._left < 0:
            raise CostExceededError("operation cancelled: actual cost limit exceeded")

    def spend_call(self, values: Iterable[CelValue]) -> None:
        """Takes note of a call with these arguments."""
        self.spend(1 + sum(len(value) for value in values if isinstance(value, str | list)) // 10)

    def equals(self, left: CelValue, right: CelValue) -> bool:
        """Whether two values are equal: numbers by value, others only if they are of one type."""
        if is_number(left) and is_number(right):
            first, second = alike_numbers(left, right)
            return bool(first == second)
        if isinstance(left, list) and isinstance(right, list):
            self.spend(1 + len(left))
            return len(left) == len(right) and all(map(self.equals, left, right))
        if isinstance(left, dict) and isinstance(right, dict):
            self.spend(1 + len(left))
            return len(left) == len(right) and all(
                has_key(right, key) and self.equals(value, right[key]) for key, value in left.items()
            )
        if isinstance(left, CelOptional) and isinstance(right, CelOptional):
            return left.has_value == right.has_value and self.equals(left.value, right.value)
        return type_name(left) == type_name(right) and bool(left == right)

    def contains(self, values: Iterable[CelValue], value: CelValue) -> bool:
        """Whether one of some values is equal to a value."""
        return any(self.equals(each, value) for each in values)
