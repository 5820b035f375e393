"""``spec.gangs.controllers`` and ``parents`` of a policy: which controllers make gangs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from flowcore.model.errors import PolicyError
from flowcore.model.gang_parents import BUILT_IN_GROUPS, GangController, ParentRule
from flowcore.model.selectors import is_label_key

MAX_RULES: Final = 16
_MAX_SIZES: Final = 8
_GROUP_VERSION: Final = re.compile(r"([a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?)/(v[a-z0-9]{1,30})")
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_PLURAL: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_PATH: Final = re.compile(r"(spec|status)(\.[A-Za-z][A-Za-z0-9]{0,62}(\[\])?){1,8}")


class WireParentRule(msgspec.Struct, rename="camel"):
    """One entry of ``spec.gangs.parents``."""

    api_version: str
    kind: str
    plural: str
    size: list[str]
    pod_label: str = ""


def parse_controllers(controllers: Sequence[GangController]) -> tuple[GangController, ...]:
    """The sources of gangs that a policy turns on.

    Raises:
        PolicyError: one is given twice.
    """
    if len(set(controllers)) < len(controllers):
        raise PolicyError("spec.gangs.controllers", "a controller is given twice; give each once")
    return tuple(each for each in GangController if each in controllers)


def parse_parent_rules(wires: Sequence[WireParentRule]) -> tuple[ParentRule, ...]:
    """The rows that a policy adds.

    Raises:
        PolicyError: a row is not valid; the error names the field.
    """
    if len(wires) > MAX_RULES:
        raise PolicyError("spec.gangs.parents", f"{len(wires)} are given, {MAX_RULES} are allowed")
    rules: dict[str, ParentRule] = {}
    for index, wire in enumerate(wires):
        rule = _parse_rule(wire, f"spec.gangs.parents[{index}]")
        if rule.kind in rules:
            raise PolicyError(f"spec.gangs.parents[{index}].kind", f'"{wire.kind}" of this group is given twice')
        rules[rule.kind] = rule
    return tuple(rules.values())


def _parse_rule(wire: WireParentRule, field: str) -> ParentRule:
    group_version = _GROUP_VERSION.fullmatch(wire.api_version)
    if group_version is None:
        raise PolicyError(
            f"{field}.apiVersion", f'"{wire.api_version}" is no group and version, such as example.com/v1'
        )
    if _KIND.fullmatch(wire.kind) is None:
        raise PolicyError(f"{field}.kind", f'"{wire.kind}" is no kind')
    if _PLURAL.fullmatch(wire.plural) is None:
        raise PolicyError(f"{field}.plural", f'"{wire.plural}" is no plural of a kind')
    if wire.pod_label and not is_label_key(wire.pod_label):
        raise PolicyError(f"{field}.podLabel", f'"{wire.pod_label}" is not a label key')
    if group_version[1] in BUILT_IN_GROUPS:
        raise PolicyError(f"{field}.apiVersion", f'"{group_version[1]}" is built in: see spec.gangs.controllers')
    if not 0 < len(wire.size) <= _MAX_SIZES:
        raise PolicyError(f"{field}.size", f"from 1 to {_MAX_SIZES} paths of numbers are needed")
    for number, path in enumerate(wire.size):
        if _PATH.fullmatch(path) is None:
            raise PolicyError(f"{field}.size[{number}]", f'"{path}" is no path, such as spec.workers[].replicas')
    qualified = f"{wire.kind}.{group_version[1]}"
    return ParentRule(qualified, group_version[3], wire.plural, wire.pod_label, tuple(wire.size))
