"""ResourceSlices as drivers publish them, and with the taints of DeviceTaintRules.

Only the second are sent on: who allocates devices knows one kind of taint. A change costs what it concerns, as there
may be many rules, each about one broken device.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from flowcore.model.device_taint_rules import DeviceTaintRule
from flowcore.model.resource_slices import ResourceSlice

_Pool = TypeVar("_Pool", str, str | None)


class TaintedSlices:
    """Slices and rules.

    Attributes:
        published: slices without the taints of rules, by name.
        rules: by name.
    """

    def __init__(self) -> None:
        self.published: dict[str, ResourceSlice] = {}
        self.rules: dict[str, DeviceTaintRule] = {}
        #: Names of slices and of rules by their pool; of rules for every pool by None.
        self._slices_of: dict[str, set[str]] = {}
        self._rules_of: dict[str | None, set[str]] = {}

    def set_slice(self, name: str, resource_slice: ResourceSlice | None) -> None:
        """Takes a slice as it is published; None: it is gone."""
        before = self.published.pop(name, None)
        if before is not None:
            _discard(self._slices_of, before.pool, name)
        if resource_slice is not None:
            self.published[name] = resource_slice
            self._slices_of.setdefault(resource_slice.pool, set()).add(name)

    def set_rule(self, name: str, rule: DeviceTaintRule | None) -> list[str]:
        """Takes a rule; None: it is gone. Names of the slices whose devices may have other taints now."""
        before = self.rules.pop(name, None)
        if before is not None:
            _discard(self._rules_of, before.pool, name)
        if rule is not None:
            self.rules[name] = rule
            self._rules_of.setdefault(rule.pool, set()).add(name)
        return [] if before == rule else self.selected_by(before, rule)

    def selected_by(self, *rules: DeviceTaintRule | None) -> list[str]:
        """Names of the slices that any of these rules, which may be gone, are about."""
        return sorted({name for rule in rules for name in self._about(rule)})

    def tainted(self, name: str) -> ResourceSlice | None:
        """A slice with the taints of all rules, which are in the order of their names; None: there is none."""
        resource_slice = self.published.get(name)
        if resource_slice is None:
            return None
        rules = self._rules_of.get(resource_slice.pool, set()) | self._rules_of.get(None, set())
        for rule in (self.rules[each] for each in sorted(rules)):
            if rule.is_about(resource_slice):
                resource_slice = rule.applied(resource_slice)
        return resource_slice

    def _about(self, rule: DeviceTaintRule | None) -> Iterable[str]:
        if rule is None:
            return ()
        names = self.published if rule.pool is None else self._slices_of.get(rule.pool, ())
        return (name for name in names if rule.is_about(self.published[name]))


def _discard(names_of: dict[_Pool, set[str]], pool: _Pool, name: str) -> None:
    names_of[pool].discard(name)
    if not names_of[pool]:
        del names_of[pool]
