"""The topology of a gang from the annotations of its pods, or of its PodGroup: ours, those of Kueue and Volcano."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from flowcore.api.annotation_texts import annotation, label_keys, whole_number
from flowcore.api.base import Wire
from flowcore.api.hyper_nodes import HIGHEST_TIER, TIER_MODE, tier_limit_of
from flowcore.model.errors import ModelError
from flowcore.model.gang_spec import GANG_TOPOLOGY
from flowcore.model.gang_topology import (
    ADMITTED_BY_KUEUE,
    GANG_PREFERRED_TOPOLOGY,
    GANG_SLICE_SIZE,
    GANG_SLICE_TOPOLOGY,
    KUEUE_PREFERRED_TOPOLOGY,
    KUEUE_REQUIRED_TOPOLOGY,
    KUEUE_SLICE_SIZE,
    KUEUE_SLICE_TOPOLOGY,
    GangTopology,
)
from flowcore.model.selectors import TOPOLOGY_SEPARATOR

_T = TypeVar("_T")
#: Of the required topology, the preferred one, that of slices, and their size.
_Four = tuple[_T, _T, _T, _T]
_OURS: _Four[str] = (GANG_TOPOLOGY, GANG_PREFERRED_TOPOLOGY, GANG_SLICE_TOPOLOGY, GANG_SLICE_SIZE)
_KUEUE: _Four[str] = (KUEUE_REQUIRED_TOPOLOGY, KUEUE_PREFERRED_TOPOLOGY, KUEUE_SLICE_TOPOLOGY, KUEUE_SLICE_SIZE)
_NOTHING: _Four[str | None] = (None, None, None, None)


class WireTopologyAnnotations(Wire):
    """The annotations about the topology of a gang, on pods and on PodGroup objects."""

    topology: str | None = msgspec.field(default=None, name=GANG_TOPOLOGY)
    preferred_topology: str | None = msgspec.field(default=None, name=GANG_PREFERRED_TOPOLOGY)
    slice_topology: str | None = msgspec.field(default=None, name=GANG_SLICE_TOPOLOGY)
    slice_size: str | None = msgspec.field(default=None, name=GANG_SLICE_SIZE)
    kueue_required_topology: str | None = msgspec.field(default=None, name=KUEUE_REQUIRED_TOPOLOGY)
    kueue_preferred_topology: str | None = msgspec.field(default=None, name=KUEUE_PREFERRED_TOPOLOGY)
    kueue_slice_topology: str | None = msgspec.field(default=None, name=KUEUE_SLICE_TOPOLOGY)
    kueue_slice_size: str | None = msgspec.field(default=None, name=KUEUE_SLICE_SIZE)
    tier_mode: str | None = msgspec.field(default=None, name=TIER_MODE)
    highest_tier: str | None = msgspec.field(default=None, name=HIGHEST_TIER)


def to_gang_topology(
    annotations: WireTopologyAnnotations | None, labels: dict[str, str] | None = None
) -> GangTopology | None:
    """What annotations say of a topology; None: nothing.

    Those of Kueue count where none of ours is there, and not on pods that Kueue has let in: their node selectors have
    the domain that it chose. Those of Volcano count where none of either is there.
    """
    if annotations is None:
        return None
    names = _OURS
    texts: _Four[str | None] = (
        annotations.topology,
        annotations.preferred_topology,
        annotations.slice_topology,
        annotations.slice_size,
    )
    if texts == _NOTHING:
        names = _KUEUE
        texts = (
            annotations.kueue_required_topology,
            annotations.kueue_preferred_topology,
            annotations.kueue_slice_topology,
            annotations.kueue_slice_size,
        )
        if texts == _NOTHING:
            return _of_tiers(annotations)
        if any(label in ADMITTED_BY_KUEUE for label in labels or ()):
            return None
    try:
        return _topology(names, texts)
    except ModelError as error:
        return GangTopology(bad_annotation=error.field, problem=error.problem)


def _of_tiers(annotations: WireTopologyAnnotations) -> GangTopology | None:
    """What the annotations of Volcano say; None: nothing."""
    try:
        limit = tier_limit_of(annotations.tier_mode, annotations.highest_tier)
    except ModelError as error:
        return GangTopology(bad_annotation=error.field, problem=error.problem)
    return None if limit is None else GangTopology(limit=limit)


def _topology(names: _Four[str], texts: _Four[str | None]) -> GangTopology:
    """A topology from annotations and their texts.

    Raises:
        ModelError: an annotation cannot be read, or another one is missing beside it.
    """
    required, preferred, slices = (
        () if text is None else label_keys(name, text) for name, text in zip(names[:3], texts[:3], strict=True)
    )
    size = 0 if texts[3] is None else whole_number(names[3], texts[3])
    for said, missing in ((2, 3), (3, 2)):
        if texts[said] is not None and texts[missing] is None:
            raise ModelError(annotation(names[said]), f"it needs {names[missing]} beside it")
    return GangTopology(
        required=TOPOLOGY_SEPARATOR.join(required),
        preferred=preferred,
        slice_key=TOPOLOGY_SEPARATOR.join(slices),
        slice_size=size,
    )
