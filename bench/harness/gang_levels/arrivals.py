"""The gangs of a day, drawn from a seed: when each comes, its pods, where they must be, how long it runs. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

#: Pods of a slice, and what all sizes are multiples of.
SLICE = 8


class Need(StrEnum):
    """In which domain all pods of a gang must be."""

    RACK = "rack"
    BLOCK = "block"
    #: Of one block, each slice of eight pods in one rack.
    SLICES = "slices"
    NONE = "none"


#: The narrower the domain, the more.
NARROWNESS = {Need.RACK: 2, Need.BLOCK: 1, Need.SLICES: 1, Need.NONE: 0}


@dataclass(frozen=True, slots=True, eq=False)
class ArrivingGang:
    """A gang whose pods want one GPU each.

    Attributes:
        arrives: seconds since the start.
        runs_for: seconds from its start to its end.
    """

    number: int
    pods: int
    need: Need
    arrives: float
    runs_for: float


#: Need -> its part of the gangs.
_PARTS = {Need.RACK: 0.3, Need.BLOCK: 0.05, Need.SLICES: 0.05, Need.NONE: 0.6}
#: Need -> sizes and how often they come. A rack has 64 GPUs: gangs that need one mostly need all of it.
_SIZES = {
    Need.RACK: ((8, 16, 32, 64), (0.1, 0.1, 0.2, 0.6)),
    Need.BLOCK: ((64, 128, 256, 512), (0.4, 0.3, 0.2, 0.1)),
    Need.SLICES: ((64, 128, 256, 512), (0.4, 0.3, 0.2, 0.1)),
    Need.NONE: ((8, 16, 32, 64, 128, 256, 512), (0.35, 0.25, 0.15, 0.1, 0.08, 0.05, 0.02)),
}
#: Log-normal times: the mean, the standard deviation of the logarithm, and what none exceeds.
_MEAN_SECONDS, _SIGMA, _LONGEST = 2 * 3600.0, 1.2, 12 * 3600.0


def draw(seed: int, load: float, gpus: int, seconds: float, *, slices: bool) -> list[ArrivingGang]:
    """Gangs that want ``load`` times the GPU seconds that there are, in the order in which they come.

    Args:
        gpus: of the cluster.
        seconds: from the first arrival to the last.
        slices: whether some gangs have slices; without, these need their block alone.
    """
    random = np.random.default_rng(seed)
    drawn: list[tuple[Need, int, float]] = []
    wanted = 0.0
    while wanted < load * gpus * seconds:
        need = list(_PARTS)[int(random.choice(len(_PARTS), p=list(_PARTS.values())))]
        sizes, shares = _SIZES[need]
        pods = int(random.choice(sizes, p=shares))
        runs_for = min(_LONGEST, float(random.lognormal(math.log(_MEAN_SECONDS) - _SIGMA**2 / 2, _SIGMA)))
        drawn.append((Need.BLOCK if need is Need.SLICES and not slices else need, pods, runs_for))
        wanted += pods * runs_for
    times = np.sort(random.random(len(drawn))) * seconds
    return [
        ArrivingGang(number, pods, need, arrives, runs_for)
        for number, ((need, pods, runs_for), arrives) in enumerate(zip(drawn, times.tolist(), strict=True))
    ]
