"""Devices of a claim with one attribute in common, or apart.

Source: dynamic-resource-allocation structured (matchAttributeConstraint, distinctAttributeConstraint). kube-scheduler
1.36 compares a device with the last one of each request only, and forgets that one when it tries another; here all
devices that a constraint is about differ.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from flowcore.model.resource_claims import AttributeConstraint
from flowcore.model.resource_slices import AttributeValue, Device

#: A value with its type, since 1, true and "1" are no equals; None for one of a type that is not known.
_Typed = tuple[type, AttributeValue] | None


class ConstraintState(Protocol):
    """What the devices chosen so far leave of a constraint. Each ``add`` that succeeds has one ``remove`` at most."""

    def add(self, request: str, alternative: str, device: Device, driver: str) -> bool:
        """Takes a device for a request; False: the constraint forbids it, and nothing has changed.

        Args:
            alternative: its name, "" for a request without alternatives.
        """
        ...

    def remove(self, request: str, alternative: str, device: Device, driver: str) -> None:
        """Gives it back: the last one that was taken."""
        ...


def constraint_state(constraint: AttributeConstraint) -> ConstraintState | None:
    """A constraint before any device is chosen; None for one of a kind that is not known."""
    if constraint.match_attribute:
        return _Matching(constraint.requests, constraint.match_attribute)
    if constraint.distinct_attribute:
        return _Distinct(constraint.requests, constraint.distinct_attribute)
    return None


def has_attribute(device: Device, driver: str, name: str) -> bool:
    """Whether a device has an attribute under its fully qualified name."""
    return _local_name(device, driver, name) is not None


def attribute_of(device: Device, driver: str, name: str) -> AttributeValue:
    """Its value; None where it has none, or one of a type that is not known."""
    local = _local_name(device, driver, name)
    return next((value for attribute, value in device.attributes if attribute == local), None)


def _local_name(device: Device, driver: str, name: str) -> str | None:
    names = {attribute for attribute, _ in device.attributes}
    if name in names:
        return name
    domain, _, identifier = name.partition("/")
    return identifier if identifier in names and domain == driver else None


class _Constraint:
    def __init__(self, requests: tuple[str, ...], attribute: str) -> None:
        self._requests = frozenset(requests)
        self._attribute = attribute

    def _concerns(self, request: str, alternative: str) -> bool:
        return (
            not self._requests
            or request in self._requests
            or (bool(alternative) and f"{request}/{alternative}" in self._requests)
        )

    def _typed(self, device: Device, driver: str) -> _Typed:
        value = attribute_of(device, driver, self._attribute)
        return None if value is None else (type(value), value)


class _Matching(_Constraint):
    """All devices have the value of the first one."""

    def __init__(self, requests: tuple[str, ...], attribute: str) -> None:
        super().__init__(requests, attribute)
        self._value: _Typed = None
        self._devices = 0

    def add(self, request: str, alternative: str, device: Device, driver: str) -> bool:
        if not self._concerns(request, alternative):
            return True
        if not has_attribute(device, driver, self._attribute):
            return False
        value = self._typed(device, driver)
        if self._devices and (value is None or value != self._value):
            return False
        self._value = value
        self._devices += 1
        return True

    def remove(self, request: str, alternative: str, device: Device, driver: str) -> None:
        if self._concerns(request, alternative):
            self._devices -= 1


class _Distinct(_Constraint):
    """No two devices have the same value."""

    def __init__(self, requests: tuple[str, ...], attribute: str) -> None:
        super().__init__(requests, attribute)
        self._values = Counter[_Typed]()

    def add(self, request: str, alternative: str, device: Device, driver: str) -> bool:
        if not self._concerns(request, alternative):
            return True
        if not has_attribute(device, driver, self._attribute):
            return False
        value = self._typed(device, driver)
        if self._values and (value is None or value in self._values):
            return False
        self._values[value] += 1
        return True

    def remove(self, request: str, alternative: str, device: Device, driver: str) -> None:
        if self._concerns(request, alternative):
            value = self._typed(device, driver)
            self._values[value] -= 1
            if not self._values[value]:
                del self._values[value]
