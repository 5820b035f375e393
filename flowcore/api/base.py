"""Common parts of all objects: metadata, quantities, and one copy of equal values."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec

from flowcore.model.generational_cache import estimate_bytes
from flowcore.model.selectors import Labels

Quantity = str | int | float
Quantities = dict[str, Quantity]
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]

_T = TypeVar("_T")


class Wire(msgspec.Struct, rename="camel", gc=False):
    """Base of the wire structs."""


class WireMeta(Wire):
    name: str = ""
    namespace: str | None = None
    uid: str | None = None
    labels: dict[str, str] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    resource_version: str | None = None


class Interner:
    """Makes equal values the same object.

    Pods of one owner repeat their class, labels and usage. Sharing them keeps a snapshot of 150,000 pods small. Unused
    values are dropped each time that ``max_new_bytes`` of new values have come.

    Args:
        max_new_bytes: bytes of new values between two such times.
    """

    def __init__(self, max_new_bytes: int = 2**22) -> None:
        self._known: dict[Any, Any] = {}
        self._max_new_bytes = max_new_bytes
        self._new = 0

    def __len__(self) -> int:
        return len(self._known)

    def __call__(self, value: _T) -> _T:
        before = len(self._known)
        shared = self._known.setdefault(value, value)
        if len(self._known) > before:
            self._new += estimate_bytes(value)
            if self._new > self._max_new_bytes:
                self.drop_unused()
        return shared  # type: ignore[no-any-return]

    def drop_unused(self) -> None:
        """Drops the values without another reference. The next call drops their parts."""
        uses = _uses(self._known)
        self._known = {value: value for value, count in zip(list(self._known), uses, strict=True) if count > _UNUSED}
        self._new = 0


def _uses(known: dict[Any, Any]) -> list[int]:
    """The reference count of each key."""
    return [sys.getrefcount(value) for value in known]


def _count_unused() -> int:
    """The reference count of a value that only an Interner holds."""
    known: dict[Any, Any] = {tuple(["unused"]): None}  # noqa: C409 - a literal would be a constant, with users of its own
    for value in list(known):
        known[value] = value
    del value
    return _uses(known)[0]


_UNUSED = _count_unused()


def to_labels(labels: dict[str, str] | None) -> Labels:
    """Sorted pairs, as all model values carry labels."""
    return tuple(sorted(labels.items())) if labels else ()


def to_seconds(when: datetime | None) -> float:
    """Seconds since the epoch; a time without a zone is UTC, as all of Kubernetes' are."""
    if when is None:
        return 0.0
    return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()
