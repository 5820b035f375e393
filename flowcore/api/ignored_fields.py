"""Fields that objects of Thalweg's own kinds may have, and that nothing reads any more.

The schema keeps such a field for one release, so that stored objects stay valid. Its description begins with
``Ignored since``. The condition UpToDate, ``doctor`` and warnings about a dump say what to write in its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from flowcore.api.policies import KIND
from flowcore.model.volumes import ZONE


class IgnoredField(msgspec.Struct, frozen=True):
    """A field that is ignored.

    Attributes:
        kind: of the objects that have it.
        since: the release.
        instead: what to write, or what holds, in its place.
        default: what the API server wrote into every object when the schema had the field; it means what holds now.
    """

    kind: str
    path: tuple[str, ...]
    since: str
    instead: str
    default: Any = None

    @property
    def shown(self) -> str:
        """Its path, as ``kubectl explain`` would write it."""
        return ".".join(self.path)


IGNORED_FIELDS: Final = (
    IgnoredField(
        KIND,
        ("spec", "cost", "learn"),
        "0.1.0",
        "state penalties in spec.cost.interference and slowdowns in spec.cost.machines",
        default=False,
    ),
    IgnoredField(
        KIND,
        ("spec", "cost", "dataLocality", "zoneLabel"),
        "0.1.0",
        f"zones are values of the label {ZONE}",
        ZONE,
    ),
    IgnoredField(
        KIND, ("spec", "cost", "interference", "weight"), "0.1.0", "each penalty counts as it is stated", default=1
    ),
    IgnoredField(
        KIND, ("spec", "cost", "machines", "weight"), "0.1.0", "each slowdown counts as it is stated", default=1
    ),
    IgnoredField(KIND, ("spec", "rescheduling", "perStrandedGPU"), "0.1.0", "stranded GPUs cost nothing", default=0),
)


def without_ignored_fields(manifest: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The object without the fields that are ignored, and a sentence about each that says anything."""
    sentences = []
    for field in IGNORED_FIELDS:
        if field.kind == manifest["kind"]:
            value = _value(manifest, field.path)
            manifest = _without(manifest, field.path)
            if value not in (None, field.default):
                sentences.append(f"{field.shown} is ignored since {field.since}: {field.instead}")
    return manifest, sentences


def ignored_in(kind: str, spec: Mapping[str, Any]) -> list[str]:
    """A sentence about each field of a spec that says anything and is ignored."""
    return without_ignored_fields({"kind": kind, "spec": spec})[1]


def _value(value: Any, path: Sequence[str]) -> Any:
    """The field at a path; None if there is no such field."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _without(value: Any, path: Sequence[str]) -> Any:
    """A copy without the field at a path; the value itself if it has no such field."""
    key, *rest = path
    if not isinstance(value, Mapping) or key not in value:
        return value
    if not rest:
        return {name: entry for name, entry in value.items() if name != key}
    shorter = _without(value[key], rest)
    return value if shorter is value[key] else {**value, key: shorter}
