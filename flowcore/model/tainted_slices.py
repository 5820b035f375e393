"""ResourceSlices as drivers publish them, and with the taints of DeviceTaintRules.

Only the second are sent on: who allocates devices knows one kind of taint. A change costs what it concerns, as there
may be many rules, each about one broken device: rules about other drivers, pools or devices are not looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec

from flowcore.model.device_taint_rules import DeviceTaintRule
from flowcore.model.resource_slices import Device, DeviceTaint, ResourceSlice

#: Driver and pool as a rule may name them; None: any.
_Selected = tuple[str | None, str | None]


class TaintedSlices:
    """Slices and rules.

    Attributes:
        published: slices without the taints of rules, by name.
        rules: by name.
    """

    def __init__(self) -> None:
        self.published: dict[str, ResourceSlice] = {}
        self.rules: dict[str, DeviceTaintRule] = {}
        #: Names of the slices that a rule with this driver and pool selects.
        self._slices_of: dict[_Selected, set[str]] = {}
        #: Names of the rules with this driver and pool, by the device that they name; None: any device.
        self._rules_of: dict[_Selected, dict[str | None, set[str]]] = {}

    def set_slice(self, name: str, resource_slice: ResourceSlice | None) -> None:
        """Takes a slice as it is published; None: it is gone."""
        before = self.published.pop(name, None)
        for selected in () if before is None else _selecting(before):
            self._slices_of[selected].discard(name)
            if not self._slices_of[selected]:
                del self._slices_of[selected]
        if resource_slice is not None:
            self.published[name] = resource_slice
            for selected in _selecting(resource_slice):
                self._slices_of.setdefault(selected, set()).add(name)

    def set_rule(self, name: str, rule: DeviceTaintRule | None) -> list[str]:
        """Takes a rule; None: it is gone. Names of the slices whose devices may have other taints now."""
        before = self.rules.pop(name, None)
        if before is not None and before.selects:
            self._drop(name, before)
        if rule is not None:
            self.rules[name] = rule
            if rule.selects:
                by_device = self._rules_of.setdefault((rule.driver, rule.pool), {})
                by_device.setdefault(rule.device, set()).add(name)
        return [] if before == rule else self.selected_by(before, rule)

    def _drop(self, name: str, rule: DeviceTaintRule) -> None:
        selected = rule.driver, rule.pool
        by_device = self._rules_of[selected]
        by_device[rule.device].discard(name)
        if not by_device[rule.device]:
            del by_device[rule.device]
            if not by_device:
                del self._rules_of[selected]

    def selected_by(self, *rules: DeviceTaintRule | None) -> list[str]:
        """Names of the slices that any of these rules, which may be gone, are about."""
        return sorted({name for rule in rules for name in self._about(rule)})

    def tainted(self, name: str) -> ResourceSlice | None:
        """A slice with the taints of all rules, which are in the order of their names; None: there is none."""
        resource_slice = self.published.get(name)
        if resource_slice is None:
            return None
        of_all, of_one = self._rules_about(resource_slice)
        if not of_all and not of_one:
            return resource_slice
        usual = self._taints(of_all)
        added = {device: self._taints(of_all | rules) for device, rules in of_one.items()}
        devices = tuple(_with(device, added.get(device.name, usual)) for device in resource_slice.devices)
        return msgspec.structs.replace(resource_slice, devices=devices)

    def _rules_about(self, resource_slice: ResourceSlice) -> tuple[set[str], dict[str, set[str]]]:
        """Names of the rules about all devices of a slice, and of those about one device, by its name."""
        of_all, of_one = set[str](), dict[str, set[str]]()
        by_devices = [rules for each in _selecting(resource_slice) if (rules := self._rules_of.get(each)) is not None]
        names = {device.name for device in resource_slice.devices} if by_devices else set()
        for by_device in by_devices:
            of_all |= by_device.get(None, set())
            # As many steps as the slice has devices or the rules name devices, whichever is less.
            devices: Collection[str | None] = names if len(names) < len(by_device) else by_device
            for device in devices:
                if device is not None and device in names and device in by_device:
                    of_one.setdefault(device, set()).update(by_device[device])
        return of_all, of_one

    def _taints(self, rules: Collection[str]) -> tuple[DeviceTaint, ...]:
        return tuple(self.rules[name].taint for name in sorted(rules))

    def _about(self, rule: DeviceTaintRule | None) -> Iterable[str]:
        if rule is None:
            return ()
        names = self._slices_of.get((rule.driver, rule.pool), ())
        return (name for name in names if rule.is_about(self.published[name]))


def _selecting(resource_slice: ResourceSlice) -> Iterator[_Selected]:
    """The driver and the pool as rules about devices of a slice may name them."""
    for driver in (resource_slice.driver, None):
        for pool in (resource_slice.pool, None):
            yield driver, pool


def _with(device: Device, taints: tuple[DeviceTaint, ...]) -> Device:
    return msgspec.structs.replace(device, taints=(*device.taints, *taints)) if taints else device
