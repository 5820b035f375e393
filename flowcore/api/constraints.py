"""``spec.constraints`` and ``spec.gangs`` of a policy: from JSON to model values."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from flowcore.api.durations import parse_policy_seconds
from flowcore.api.parent_rules import WireParentRule, parse_controllers, parse_parent_rules
from flowcore.api.selectors import WireLabelSelector, parse_selector
from flowcore.model.constraints import Conflict, Constraint, Exclusive, Global, OneDomain
from flowcore.model.errors import PolicyError
from flowcore.model.gang_parents import DEFAULT_CONTROLLERS, GangController
from flowcore.model.policies import GangPolicy, PartialBind, PodsToComeMode, WaitingMode
from flowcore.model.selectors import is_label_key

_Limit = Annotated[int, msgspec.Meta(ge=0, le=10**6)]


class _Require(StrEnum):
    ALL_OR_NONE = "AllOrNone"
    AS_MANY_AS_FIT = "AsManyAsFit"


class _Conflict(msgspec.Struct, rename="camel"):
    pods: WireLabelSelector
    topology_key: str
    max_per_domain: _Limit = 1


class _Exclusive(msgspec.Struct, rename="camel"):
    groups: list[WireLabelSelector]
    topology_key: str
    max_per_domain: _Limit | None = None
    max_placed: _Limit | None = None


class _Together(msgspec.Struct, rename="camel"):
    pods: WireLabelSelector
    topology_key: str


class _Global(msgspec.Struct, rename="camel"):
    pods: WireLabelSelector
    nodes: WireLabelSelector = msgspec.field(default_factory=WireLabelSelector)
    require: _Require = _Require.AS_MANY_AS_FIT


class WireConstraint(msgspec.Struct):
    """One entry of ``spec.constraints``."""

    name: str
    conflict: _Conflict | None = None
    exclusive: _Exclusive | None = None
    together: _Together | None = None
    everywhere: _Global | None = msgspec.field(default=None, name="global")


class WireGangs(msgspec.Struct, rename="camel"):
    """``spec.gangs``; durations as Go writes them."""

    timeout: str = "10m"
    on_partial_bind: PartialBind = PartialBind.REPLAN
    hold_room_after: str = "10m"
    hold_room_for: str = "10m"
    hold_room_share: Annotated[int, msgspec.Meta(ge=0, le=100)] = GangPolicy().hold_room_share
    waiting: WaitingMode = WaitingMode.AUTO
    controllers: list[GangController] = msgspec.field(default_factory=lambda: list(DEFAULT_CONTROLLERS))
    parents: list[WireParentRule] = msgspec.field(default_factory=list)
    pods_to_come: PodsToComeMode = PodsToComeMode.IGNORE


def parse_constraints(wires: Sequence[WireConstraint]) -> tuple[Constraint, ...]:
    """The constraints of a policy, in their order.

    Raises:
        PolicyError: a constraint is not valid; the error names the field.
    """
    by_name: dict[str, Constraint] = {}
    for index, wire in enumerate(wires):
        field = f"spec.constraints[{index}]"
        if not wire.name:
            raise PolicyError(f"{field}.name", "every constraint has a name")
        if wire.name in by_name:
            raise PolicyError(f"{field}.name", f'"{wire.name}" is the name of another constraint')
        by_name[wire.name] = _parse_constraint(wire, field)
    return tuple(by_name.values())


def _parse_constraint(wire: WireConstraint, field: str) -> Constraint:
    match wire:
        case WireConstraint(conflict=_Conflict() as conflict, exclusive=None, together=None, everywhere=None):
            pods = parse_selector(conflict.pods, f"{field}.conflict.pods")
            key = _topology_key(conflict.topology_key, f"{field}.conflict")
            return Conflict(wire.name, pods, key, conflict.max_per_domain)
        case WireConstraint(conflict=None, exclusive=_Exclusive() as exclusive, together=None, everywhere=None):
            path = f"{field}.exclusive"
            if len(exclusive.groups) < 2:
                raise PolicyError(f"{path}.groups", "needs at least two groups")
            groups = tuple(
                parse_selector(group, f"{path}.groups[{index}]") for index, group in enumerate(exclusive.groups)
            )
            key = _topology_key(exclusive.topology_key, path)
            return Exclusive(wire.name, groups, key, exclusive.max_per_domain, exclusive.max_placed)
        case WireConstraint(conflict=None, exclusive=None, together=_Together() as together, everywhere=None):
            pods = parse_selector(together.pods, f"{field}.together.pods")
            return OneDomain(wire.name, pods, _topology_key(together.topology_key, f"{field}.together"))
        case WireConstraint(conflict=None, exclusive=None, together=None, everywhere=_Global() as everywhere):
            pods = parse_selector(everywhere.pods, f"{field}.global.pods")
            nodes = parse_selector(everywhere.nodes, f"{field}.global.nodes")
            return Global(wire.name, pods, nodes, everywhere.require is _Require.ALL_OR_NONE)
    raise PolicyError(field, "needs exactly one of conflict, exclusive, together, global")


def _topology_key(key: str, field: str) -> str:
    if not is_label_key(key):
        raise PolicyError(f"{field}.topologyKey", f'"{key}" is not a label key')
    return key


def parse_gangs(wire: WireGangs) -> GangPolicy:
    """How the policy deals with gangs.

    Raises:
        PolicyError: a field is not valid; the error names it.
    """
    return GangPolicy(
        timeout=parse_policy_seconds(wire.timeout, "spec.gangs.timeout"),
        on_partial_bind=wire.on_partial_bind,
        hold_room_after=parse_policy_seconds(wire.hold_room_after, "spec.gangs.holdRoomAfter"),
        hold_room_for=parse_policy_seconds(wire.hold_room_for, "spec.gangs.holdRoomFor"),
        hold_room_share=wire.hold_room_share,
        waiting=wire.waiting,
        controllers=parse_controllers(wire.controllers),
        parents=parse_parent_rules(wire.parents),
        pods_to_come=wire.pods_to_come,
    )
