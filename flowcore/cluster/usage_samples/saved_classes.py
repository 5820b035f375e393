"""What classes of pods use as text, so that it outlives the process that measured it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flowcore.model.errors import ModelError
from flowcore.model.usage import MAX_USE, SavedClass

VERSION = 1
#: Seconds after which a class without samples tells nothing any more. A monthly job is known.
_MAX_AGE = 35 * 86_400.0


class NewerUsage(Exception):
    """It was written by a later release; it must not be overwritten."""


class _SavedUsage(msgspec.Struct, frozen=True):
    version: int = VERSION
    classes: tuple[SavedClass, ...] = ()


class _Versioned(msgspec.Struct):
    version: int


def to_text(classes: Sequence[SavedClass], limit: int) -> bytes:
    """The text, of at most ``limit`` bytes.

    Where that is too little, namespaces have equally many bytes, as far as they need them, and of each the classes that
    were measured last are kept.
    """
    left = limit - len(msgspec.json.encode(_SavedUsage()))
    kept = set[int]()
    for position, size in _fair_order(classes):
        left -= size
        if left < 0:
            break
        kept.add(position)
    return msgspec.json.encode(
        _SavedUsage(classes=tuple(each for position, each in enumerate(classes) if position in kept))
    )


def _fair_order(classes: Sequence[SavedClass]) -> list[tuple[int, int]]:
    """Positions of classes, what is kept longest first, and bytes of each with a comma.

    As max-min fairness has it: a namespace that needs less leaves the rest to the others.
    """
    totals: dict[str, int] = {}
    order: list[tuple[int, float, int, int]] = []
    for position, saved in sorted(enumerate(classes), key=lambda numbered: -numbered[1].newest):
        size, namespace = len(msgspec.json.encode(saved)) + 1, saved.usage_class.namespace
        totals[namespace] = totals.get(namespace, 0) + size
        order.append((totals[namespace], -saved.newest, position, size))
    return [(position, size) for *_, position, size in sorted(order)]


def from_text(text: str, now: float) -> tuple[SavedClass, ...]:
    """What a text says, without what is too old and what cannot be.

    The clock of its writer may have been ahead: a time that has not come yet counts as now.

    Args:
        now: seconds since the epoch.

    Raises:
        NewerUsage: a later release wrote it.
        ModelError: it is not what ``to_text`` writes.
    """
    try:
        version = msgspec.json.decode(text, type=_Versioned).version
        if version > VERSION:
            raise NewerUsage(f"it has version {version}, and this release reads version {VERSION}")
        saved = msgspec.json.decode(text, type=_SavedUsage)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ModelError("", str(error)) from error
    return tuple(
        msgspec.structs.replace(each, newest=min(each.newest, now))
        for each in saved.classes
        if each.newest > now - _MAX_AGE and all(0 <= amount <= MAX_USE for pair in each.amounts for amount in pair)
    )
