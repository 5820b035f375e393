"""``spec.constraints`` and ``spec.gangs`` of a policy, as they are written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from flowcore.model.constraints import Conflict, Constraint, Exclusive, Global, OneDomain
from flowcore.model.policies import GangTerms, PartialBind, WaitingMode
from flowcore.model.selectors import is_label_key
from flowcore.model.wire import WireLabelSelector
from thalweg_operator.errors import PolicyError
from thalweg_operator.selectors import selector

_Most = Annotated[int, msgspec.Meta(ge=0, le=10**6)]
_DURATION = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,6})m)?(?:(\d{1,8})s)?", re.ASCII)


class _Require(StrEnum):
    ALL_OR_NONE = "AllOrNone"
    AS_MANY_AS_FIT = "AsManyAsFit"


class _Conflict(msgspec.Struct, rename="camel"):
    pods: WireLabelSelector
    topology_key: str
    max_per_domain: _Most = 1


class _Exclusive(msgspec.Struct, rename="camel"):
    groups: list[WireLabelSelector]
    topology_key: str
    max_per_domain: _Most | None = None
    max_placed: _Most | None = None


class _Together(msgspec.Struct, rename="camel"):
    pods: WireLabelSelector
    topology_key: str


class _Global(msgspec.Struct, rename="camel"):
    pods: WireLabelSelector
    nodes: WireLabelSelector = msgspec.field(default_factory=WireLabelSelector)
    require: _Require = _Require.AS_MANY_AS_FIT


class WireConstraint(msgspec.Struct):
    """One of ``spec.constraints``."""

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
    hold_room_share: Annotated[int, msgspec.Meta(ge=0, le=100)] = GangTerms().hold_room_share
    waiting: WaitingMode = WaitingMode.GATE


def constraints(wires: Sequence[WireConstraint]) -> tuple[Constraint, ...]:
    """The constraints.

    Raises:
        PolicyError: one of them cannot be what is meant; the message names the field.
    """
    found: dict[str, Constraint] = {}
    for index, wire in enumerate(wires):
        field = f"spec.constraints[{index}]"
        if not wire.name:
            raise PolicyError(f"{field}.name: every constraint has a name")
        if wire.name in found:
            raise PolicyError(f'{field}.name: "{wire.name}" is the name of another constraint')
        found[wire.name] = _constraint(wire, field)
    return tuple(found.values())


def _constraint(wire: WireConstraint, field: str) -> Constraint:
    match wire:
        case WireConstraint(conflict=_Conflict() as one, exclusive=None, together=None, everywhere=None):
            pods = selector(one.pods, f"{field}.conflict.pods")
            return Conflict(wire.name, pods, _label(one.topology_key, f"{field}.conflict"), one.max_per_domain)
        case WireConstraint(conflict=None, exclusive=_Exclusive() as one, together=None, everywhere=None):
            where = f"{field}.exclusive"
            if len(one.groups) < 2:
                raise PolicyError(f"{where}.groups: needs at least two groups")
            groups = tuple(selector(group, f"{where}.groups[{at}]") for at, group in enumerate(one.groups))
            return Exclusive(wire.name, groups, _label(one.topology_key, where), one.max_per_domain, one.max_placed)
        case WireConstraint(conflict=None, exclusive=None, together=_Together() as one, everywhere=None):
            pods = selector(one.pods, f"{field}.together.pods")
            return OneDomain(wire.name, pods, _label(one.topology_key, f"{field}.together"))
        case WireConstraint(conflict=None, exclusive=None, together=None, everywhere=_Global() as one):
            pods, nodes = selector(one.pods, f"{field}.global.pods"), selector(one.nodes, f"{field}.global.nodes")
            return Global(wire.name, pods, nodes, one.require is _Require.ALL_OR_NONE)
    raise PolicyError(f"{field}: needs exactly one of conflict, exclusive, together, global")


def _label(key: str, field: str) -> str:
    if not is_label_key(key):
        raise PolicyError(f'{field}.topologyKey: "{key}" is not a label key')
    return key


def gang_terms(wire: WireGangs) -> GangTerms:
    """The terms.

    Raises:
        PolicyError: a duration cannot be read.
    """
    return GangTerms(
        timeout=_seconds(wire.timeout, "spec.gangs.timeout"),
        on_partial_bind=wire.on_partial_bind,
        hold_room_after=_seconds(wire.hold_room_after, "spec.gangs.holdRoomAfter"),
        hold_room_for=_seconds(wire.hold_room_for, "spec.gangs.holdRoomFor"),
        hold_room_share=wire.hold_room_share,
        waiting=wire.waiting,
    )


def _seconds(text: str, field: str) -> int:
    found = _DURATION.fullmatch(text) if text else None
    if found is None:
        raise PolicyError(f'{field}: "{text}" is not a duration in hours, minutes and seconds, such as 90s or 1h30m')
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return 3600 * hours + 60 * minutes + seconds
