"""Gated pods that are let go together.

A unit's pods wait behind our gate until each that it needs is nominated, those of one wave at a time: a company. Then
all its gates open. If one is lost before that, the whole unit is planned anew. Until what it holds is given back
nothing of it is to be planned, or what is left would be taken for a gang that has begun.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from flowcore.model.pods import Pod


@dataclass(frozen=True, slots=True)
class Place:
    """Which company: of one plan, the pods of a unit whose turn comes in one wave."""

    plan: int
    unit: str
    wave: int


@dataclass(slots=True)
class _Company:
    """Keys of its pods, of those that it needs, of those of them that are not nominated yet; and those that are."""

    members: set[str] = field(default_factory=set)
    needed: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    nominated: dict[str, Pod] = field(default_factory=dict)


class Companies:
    """See the module. Those whose gates are open are forgotten."""

    def __init__(self) -> None:
        self._companies: dict[Place, _Company] = {}
        #: Pods whose nominations are being taken back, and their unit.
        self._withdrawn: dict[str, str] = {}

    def join(self, place: Place, key: str, *, spare: bool) -> None:
        """A pod waits with the others of a place; they do without a spare one."""
        company = self._companies.setdefault(place, _Company())
        company.members.add(key)
        if not spare:
            company.needed.add(key)
            company.missing.add(key)

    def nominated(self, place: Place | None, pod: Pod) -> list[Pod]:
        """Pods to let go now that this one is nominated: itself, where it waits for nobody."""
        company = None if place is None else self._companies.get(place)
        if place is None or company is None:
            return [pod]
        company.nominated[pod.key] = pod
        return self._without(place, company, pod.key)

    def done(self, place: Place | None, key: str) -> list[Pod]:
        """Pods to let go now that this one has its node: nobody waits for it, and it for nobody."""
        company = None if place is None else self._companies.get(place)
        if place is None or company is None:
            return []
        company.members.discard(key)
        company.nominated.pop(key, None)
        return self._without(place, company, key)

    def _without(self, place: Place, company: _Company, key: str) -> list[Pod]:
        company.missing.discard(key)
        if company.missing:
            return []
        del self._companies[place]
        return list(company.nominated.values())

    def lost(self, place: Place | None, key: str) -> list[str]:
        """Keys of pods that are to be given up since this one is lost: all of its unit that are not let go yet."""
        self._withdrawn.pop(key, None)
        company = None if place is None else self._companies.get(place)
        if place is None or company is None or key not in company.members:
            return []
        company.members.discard(key)
        if key not in company.needed:
            company.nominated.pop(key, None)
            if not company.members:
                del self._companies[place]
            return []
        same = [each for each in self._companies if (each.plan, each.unit) == (place.plan, place.unit)]
        return sorted(other for each in same for other in self._companies.pop(each).members)

    def withdraw(self, place: Place, key: str) -> None:
        """A pod's nomination is being taken back, until it is ``lost``."""
        self._withdrawn[key] = place.unit

    def withdraws(self, unit: str) -> bool:
        """Whether nominations of a unit are being taken back."""
        return unit in self._withdrawn.values()
