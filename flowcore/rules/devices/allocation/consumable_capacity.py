"""How much of a device's capacities a request takes, where several claims may share the device.

Source: dynamic-resource-allocation structured (consumable_capacity.go). All amounts are in billionths. Steps count in
thousandths of a unit, or in whole ones, to which kube-scheduler rounds up.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from flowcore.model.quantities import NANO
from flowcore.model.resource_slices import Device, DeviceAmounts, DeviceCapacity, RequestPolicy, ValidRange

_MILLI: Final = NANO // 1000
#: Most thousandths that kube-scheduler counts with.
_MOST_MILLI: Final = 2**63 - 1


class FinerThanStepsError(Exception):
    """An amount that cannot be rounded to a step of a capacity: it is no number of thousandths.

    Attributes:
        reason: kube-scheduler's text, with the amount in billionths.
    """

    def __init__(self, name: str, amount: int) -> None:
        self.reason = (
            f'capacity "{name}": capacity request cannot be represented in the device\'s range arithmetic: '
            f"request {amount}n is not a representable milli value"
        )
        super().__init__(self.reason)


def consumed_capacity(requested: DeviceAmounts, device: Device) -> dict[str, int] | None:
    """What a request takes of each capacity of a device.

    Returns:
        None: the device has no such capacity, or its driver does not give out that amount.

    Raises:
        FinerThanStepsError: of an amount that is requested.
    """
    amounts = dict(requested)
    if not amounts.keys() <= {name for name, _ in device.capacity}:
        return None
    taken = {name: _taken(name, amounts.get(name), capacity) for name, capacity in device.capacity}
    return None if any(_violates(taken[name], capacity.policy) for name, capacity in device.capacity) else taken


def fits_capacity(taken: Mapping[str, int], device: Device, *others: Mapping[str, int]) -> bool:
    """Whether a device has so much of each capacity left.

    Args:
        others: what others have of the device.
    """
    return all(
        taken[name] + sum(amounts.get(name, 0) for amounts in others) <= int(capacity.value)
        for name, capacity in device.capacity
    )


def _taken(name: str, requested: Decimal | None, capacity: DeviceCapacity) -> int:
    policy = capacity.policy
    if requested is None:
        return int(capacity.value if policy is None or policy.default is None else policy.default)
    if policy is None:
        return int(requested)
    if policy.valid_range is not None and policy.valid_range.least is not None:
        return _within_range(name, int(requested), int(policy.valid_range.least), policy.valid_range)
    return int(next((value for value in policy.valid_values if requested <= value), requested))


def _within_range(name: str, requested: int, least: int, valid: ValidRange) -> int:
    if requested < least:
        return least
    if not valid.step:
        return requested
    unit = _unit(valid)
    if unit == _MILLI and requested % unit:
        raise FinerThanStepsError(name, requested)
    base, step = _rounded_up(least, unit), _rounded_up(int(valid.step), unit)
    steps = -(-(_rounded_up(requested, unit) - base) // step)
    return (base + step * steps) * unit


def _violates(amount: int, policy: RequestPolicy | None) -> bool:
    if policy is None or amount == policy.default:
        return False
    if policy.valid_range is not None:
        return _leaves_range(amount, policy.valid_range)
    return bool(policy.valid_values) and amount not in policy.valid_values


def _leaves_range(amount: int, valid: ValidRange) -> bool:
    if valid.most is not None and amount > valid.most:
        return True
    if not valid.step:
        return False
    unit = _unit(valid)
    if unit == _MILLI and amount % unit:
        return True
    base = 0 if valid.least is None else _rounded_up(int(valid.least), unit)
    return (_rounded_up(amount, unit) - base) % _rounded_up(int(valid.step), unit) != 0


def _unit(valid: ValidRange) -> int:
    """What steps count in: thousandths if all of the range is a number of them, else whole units."""
    limits = [int(limit) for limit in (valid.least, valid.most, valid.step) if limit is not None]
    exact = all(limit % _MILLI == 0 and limit // _MILLI <= _MOST_MILLI for limit in limits)
    return _MILLI if valid.in_thousandths and exact else NANO


def _rounded_up(amount: int, unit: int) -> int:
    return -(-amount // unit)
