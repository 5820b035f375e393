"""Volumes that pods of a round take from each other: which they get, and what is left for the next."""

from flowcore.rules.volumes.placed_volumes import (
    ComingVolumes,
    PlacedVolumes,
    chosen_for,
    contends,
    decides_for_others,
)
from flowcore.rules.volumes.volume_choice import Promises, choose

__all__ = ["ComingVolumes", "PlacedVolumes", "Promises", "choose", "chosen_for", "contends", "decides_for_others"]
