"""What all objects have in common: metadata, quantities, and one copy of equal values."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec

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
    resource_version: str | None = None


class Interner:
    """Makes equal values the same object.

    Pods of one owner repeat their class, labels and usage; sharing them is what keeps a snapshot of
    150,000 pods small. Labels and messages of pods long gone would pile up: past ``most`` entries it forgets
    them all and begins again; what is in use stays as it is.
    """

    def __init__(self, most: int = 100_000) -> None:
        self._known: dict[Any, Any] = {}
        self._most = most

    def __call__(self, value: _T) -> _T:
        if len(self._known) >= self._most:
            self._known.clear()
        return self._known.setdefault(value, value)  # type: ignore[no-any-return]


def to_labels(labels: dict[str, str] | None) -> Labels:
    """Sorted pairs, as all model values carry labels."""
    return tuple(sorted(labels.items())) if labels else ()


def to_seconds(when: datetime | None) -> float:
    """Seconds since the epoch; a time without a zone is UTC, as all of Kubernetes' are."""
    if when is None:
        return 0.0
    return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()
