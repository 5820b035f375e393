"""In which order the gangs of an atomic group choose their domains."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flowcore.model.gangs import Gang
from flowcore.planning.problem.demands.atomic_groups import AtomicGroup
from flowcore.planning.problem.demands.demands import Demand

#: Demand -> the places of its pods that are of a gang.
Members = Mapping[int, tuple[int, ...]]


def by_turns(
    group: AtomicGroup, demands: Mapping[int, Demand], chooses: Callable[[Gang], bool]
) -> list[tuple[Gang, Members]]:
    """Gangs that choose, each with its pods: those that others are within, then those of large pods, then of many.

    Args:
        demands: those of the group, by number.
        chooses: whether a gang chooses.
    """
    asking = [
        (gang, members) for gang, members in zip(group.gangs, group.members, strict=True) if members and chooses(gang)
    ]

    def turn(entry: tuple[Gang, Members]) -> tuple[int, float, int, int, str]:
        (gang, members), shares = entry, [demands[number].dominant_share for number in entry[1]]
        depth = sum(members.keys() < around.keys() for _, around in asking)
        return depth, -max(shares), -sum(map(len, members.values())), len(gang.name), gang.name

    return sorted(asking, key=turn)
