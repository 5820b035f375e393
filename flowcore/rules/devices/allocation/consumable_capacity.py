"""How much of a device's capacities a request takes, where several claims may share the device.

Source: dynamic-resource-allocation structured (consumable_capacity.go). All amounts are in billionths. Steps count in
whole units, as kube-scheduler rounds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from flowcore.model.quantities import NANO, whole_from_nanos
from flowcore.model.resource_slices import Device, DeviceAmounts, DeviceCapacity, RequestPolicy, ValidRange


def consumed_capacity(requested: DeviceAmounts, device: Device) -> dict[str, int] | None:
    """What a request takes of each capacity of a device.

    Returns:
        None: the device has no such capacity, or its driver does not give out that amount.
    """
    amounts = dict(requested)
    if not amounts.keys() <= {name for name, _ in device.capacity}:
        return None
    taken = dict[str, int]()
    for name, capacity in device.capacity:
        amount = _taken(amounts.get(name), capacity)
        if _violates(amount, capacity.policy):
            return None
        taken[name] = amount
    return taken


def fits_capacity(taken: Mapping[str, int], device: Device, *others: Mapping[str, int]) -> bool:
    """Whether a device has so much of each capacity left.

    Args:
        others: what others have of the device.
    """
    return all(
        taken[name] + sum(amounts.get(name, 0) for amounts in others) <= int(capacity.value)
        for name, capacity in device.capacity
    )


def _taken(requested: Decimal | None, capacity: DeviceCapacity) -> int:
    policy = capacity.policy
    if requested is None:
        return int(capacity.value if policy is None or policy.default is None else policy.default)
    if policy is None:
        return int(requested)
    if policy.valid_range is not None and policy.valid_range.least is not None:
        return _within_range(int(requested), int(policy.valid_range.least), policy.valid_range)
    return int(next((value for value in policy.valid_values if requested <= value), requested))


def _within_range(requested: int, least: int, valid: ValidRange) -> int:
    if requested < least:
        return least
    step = _whole(valid.step)
    if not step:
        return requested
    base = whole_from_nanos(least)
    steps = -(-(whole_from_nanos(requested) - base) // step)
    return (base + step * steps) * NANO


def _violates(amount: int, policy: RequestPolicy | None) -> bool:
    if policy is None or amount == policy.default:
        return False
    if policy.valid_range is not None:
        return _leaves_range(amount, policy.valid_range)
    return bool(policy.valid_values) and amount not in policy.valid_values


def _leaves_range(amount: int, valid: ValidRange) -> bool:
    if valid.most is not None and amount > valid.most:
        return True
    step = _whole(valid.step)
    return bool(step) and (whole_from_nanos(amount) - _whole(valid.least)) % step != 0


def _whole(amount: Decimal | None) -> int:
    return 0 if amount is None else whole_from_nanos(int(amount))
