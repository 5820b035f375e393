"""Devices of a claim with one attribute in common, or apart.

Source: dynamic-resource-allocation structured (matchAttributeConstraint, distinctAttributeConstraint). kube-scheduler
1.36 compares a device with the last one of each request only, and forgets that one when it tries another; here all
devices that a constraint is about differ.
"""

from __future__ import annotations

from typing import Protocol

from flowcore.model.resource_claims import AttributeConstraint
from flowcore.model.resource_slices import Device, DeviceAttribute


class ConstraintState(Protocol):
    """What the devices chosen so far leave of a constraint. Each ``add`` that succeeds has one ``remove`` at most."""

    def add(self, request: str, alternative: str, device: Device, driver: str) -> bool:
        """Takes a device for a request; False: the constraint forbids it, and nothing has changed.

        Args:
            alternative: its name, "" for a request without alternatives.
        """
        ...

    def remove(self, request: str, alternative: str, device: Device, driver: str, /) -> None:
        """Gives it back: the last one that was taken."""
        ...


def constraint_state(constraint: AttributeConstraint) -> ConstraintState | None:
    """A constraint before any device is chosen; None for one of a kind that is not known."""
    if constraint.match_attribute:
        return _Matching(constraint.requests, constraint.match_attribute)
    if constraint.distinct_attribute:
        return _Distinct(constraint.requests, constraint.distinct_attribute)
    return None


def attribute_of(device: Device, driver: str, name: str) -> DeviceAttribute | None:
    """The attribute that a device has under a fully qualified name, None if it has none."""
    attributes = dict(device.attributes)
    if name in attributes:
        return attributes[name]
    domain, _, identifier = name.partition("/")
    return attributes.get(identifier) if domain == driver else None


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


class _Matching(_Constraint):
    """All devices have the value of the first one."""

    def __init__(self, requests: tuple[str, ...], attribute: str) -> None:
        super().__init__(requests, attribute)
        self._value: DeviceAttribute | None = None
        self._devices = 0

    def add(self, request: str, alternative: str, device: Device, driver: str) -> bool:
        if not self._concerns(request, alternative):
            return True
        value = attribute_of(device, driver, self._attribute)
        if value is None or (self._devices and (value != self._value or not value.kind)):
            return False
        self._value = value
        self._devices += 1
        return True

    def remove(self, request: str, alternative: str, _device: Device, _driver: str) -> None:
        if self._concerns(request, alternative):
            self._devices -= 1


class _Distinct(_Constraint):
    """No two devices have the same value."""

    def __init__(self, requests: tuple[str, ...], attribute: str) -> None:
        super().__init__(requests, attribute)
        self._values = set[DeviceAttribute]()

    def add(self, request: str, alternative: str, device: Device, driver: str) -> bool:
        if not self._concerns(request, alternative):
            return True
        value = attribute_of(device, driver, self._attribute)
        if value is None or (self._values and (value in self._values or not value.kind)):
            return False
        self._values.add(value)
        return True

    def remove(self, request: str, alternative: str, device: Device, driver: str) -> None:
        value = attribute_of(device, driver, self._attribute)
        if value is not None and self._concerns(request, alternative):
            self._values.remove(value)
