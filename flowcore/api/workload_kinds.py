"""``spec.cost.kinds``, ``interference`` and ``machines`` of a FlowSchedulingPolicy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated

import msgspec

from flowcore.api.selectors import WireLabelSelector, parse_selector
from flowcore.model.errors import PolicyError
from flowcore.model.selectors import is_label_key
from flowcore.model.workload_kinds import NORMAL_SPEED, Interference, Machines, WorkloadKind

_Penalty = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
#: From 0.001 to 999.999.
_SLOWDOWN = re.compile(r"(?=.*[1-9])[0-9]{1,3}(\.[0-9]{1,3})?")


class WireKind(msgspec.Struct):
    """One entry of ``spec.cost.kinds``."""

    name: str
    pods: WireLabelSelector


class _PenaltyEntry(msgspec.Struct):
    kind: str
    beside: str
    penalty: _Penalty


class WireInterference(msgspec.Struct):
    penalties: list[_PenaltyEntry] = msgspec.field(default_factory=list)
    default: _Penalty | None = None


class _SlowdownEntry(msgspec.Struct):
    kind: str
    machine: str
    slowdown: str


class WireMachines(msgspec.Struct):
    label: str
    slowdowns: list[_SlowdownEntry] = msgspec.field(default_factory=list)


def parse_kinds(wires: Sequence[WireKind]) -> tuple[WorkloadKind, ...]:
    """The kinds of a policy, in their order.

    Raises:
        PolicyError: a kind is not valid; the error names the field.
    """
    kinds: dict[str, WorkloadKind] = {}
    for index, wire in enumerate(wires):
        field = f"spec.cost.kinds[{index}]"
        if not wire.name:
            raise PolicyError(f"{field}.name", "every kind has a name")
        if wire.name in kinds:
            raise PolicyError(f"{field}.name", f'"{wire.name}" is the name of another kind')
        kinds[wire.name] = WorkloadKind(wire.name, parse_selector(wire.pods, f"{field}.pods"))
    return tuple(kinds.values())


def parse_interference(wire: WireInterference | None, kinds: Sequence[WorkloadKind]) -> Interference | None:
    """What pods cost beside each other.

    Raises:
        PolicyError: a penalty is missing, given twice or for an unknown kind; the error names the field.
    """
    if wire is None:
        return None
    field, names = "spec.cost.interference.penalties", [kind.name for kind in kinds]
    given: dict[tuple[str, str], int] = {}
    for index, entry in enumerate(wire.penalties):
        for key, name in (("kind", entry.kind), ("beside", entry.beside)):
            _check_kind(name, names, f"{field}[{index}].{key}")
        if (entry.kind, entry.beside) in given:
            raise PolicyError(f"{field}[{index}]", f'"{entry.kind}" beside "{entry.beside}" has a penalty already')
        given[entry.kind, entry.beside] = entry.penalty

    def penalty_of(kind: str, beside: str) -> int:
        penalty = given.get((kind, beside), wire.default)
        if penalty is None:
            raise PolicyError(
                field, f'no penalty for "{kind}" beside "{beside}"; give it, or set spec.cost.interference.default'
            )
        return penalty

    return Interference(tuple(tuple(penalty_of(kind, beside) for beside in names) for kind in names))


def parse_machines(wire: WireMachines | None, kinds: Sequence[WorkloadKind]) -> Machines | None:
    """How fast kinds of machines are.

    Raises:
        PolicyError: a slowdown is no positive number, given twice or for an unknown kind; the error names the field.
    """
    if wire is None:
        return None
    if not is_label_key(wire.label):
        raise PolicyError("spec.cost.machines.label", f'"{wire.label}" is not a label key')
    names = [kind.name for kind in kinds]
    slowdowns: dict[tuple[str, str], int] = {}
    for index, entry in enumerate(wire.slowdowns):
        field = f"spec.cost.machines.slowdowns[{index}]"
        _check_kind(entry.kind, names, f"{field}.kind")
        if (entry.kind, entry.machine) in slowdowns:
            raise PolicyError(field, f'"{entry.kind}" on "{entry.machine}" has a slowdown already')
        if not _SLOWDOWN.fullmatch(entry.slowdown):
            raise PolicyError(
                f"{field}.slowdown", f'"{entry.slowdown}" is not a number from 0.001 to 999.999, such as "1.35"'
            )
        slowdowns[entry.kind, entry.machine] = int(Decimal(entry.slowdown) * NORMAL_SPEED)
    return Machines(wire.label, tuple((*key, slowdown) for key, slowdown in slowdowns.items()))


def _check_kind(name: str, names: Sequence[str], field: str) -> None:
    if name not in names:
        known = ", ".join(names)
        raise PolicyError(field, f'"{name}" is not one of spec.cost.kinds ({known or "there are none"})')
