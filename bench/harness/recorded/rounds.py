"""The recorded rounds: the objects of each, as a dump has them, and the moment that ages count up to."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROUNDS = Path(__file__).parent / "rounds.jsonl.xz"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RecordedRound:
    """A round.

    Attributes:
        name: family and seed; no other round has it.
        moment: when the cluster was so, as `thalweg plan --now` takes it.
        objects: of the cluster and its policies, with pods that terminate and nominations on their way.
    """

    name: str
    family: str
    moment: str
    objects: tuple[Object, ...]


def recorded_rounds() -> Iterator[RecordedRound]:
    """All rounds, in the order in which they were recorded."""
    with lzma.open(ROUNDS, "rt", encoding="utf-8") as lines:
        for line in lines:
            found = json.loads(line)
            yield RecordedRound(found["name"], found["family"], found["moment"], tuple(found["objects"]))
