"""Where the data is that pods read: the annotation of pods, claims and volumes, and what it says."""

from __future__ import annotations

from enum import StrEnum

import msgspec

#: Annotation of pods, PersistentVolumeClaims and PersistentVolumes.
DATA = "scheduling.thalweg/data"


class Level(StrEnum):
    """What a place of data names: a node by its name, a rack or a zone by the value of the policy's label.

    Text, since a round hashes each place once, and the hash of a plain Enum is a call of Python.
    """

    NODE = "node"
    RACK = "rack"
    ZONE = "zone"


class DataPlace(msgspec.Struct, frozen=True, gc=False):
    """A node, a rack or a zone that has the data."""

    level: Level
    name: str


class DataSource(msgspec.Struct, frozen=True, gc=False):
    """Data that a pod reads whole.

    Attributes:
        places: its replicas; the pod reads the cheapest one.
        size: bytes.
    """

    places: tuple[DataPlace, ...]
    size: int
