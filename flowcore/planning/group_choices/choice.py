"""Sets of gangs that give a tree what it lacks, the smallest first.

A tree lacks a number of its groups. A group is a gang, or another tree that lacks something itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, islice, product
from typing import TypeAlias

#: Sets of a tree within a tree that are combined with those of the others.
_MAX_SETS_BELOW = 8

#: What a set of gangs comes to; smaller ones are preferred.
Sizes: TypeAlias = Mapping[str, tuple[float, ...]]


@dataclass(slots=True)
class Choice:
    """A tree and the gangs of it that may be placed.

    Attributes:
        missing: how many of its groups must be placed at once; 0: it has what it needs, and gangs of it do not count
            for what is above.
    """

    name: str
    missing: int
    gangs: list[str] = field(default_factory=list)
    below: dict[str, Choice] = field(default_factory=dict)

    @property
    def all_gangs(self) -> tuple[str, ...]:
        """Its gangs and those below it."""
        return (*self.gangs, *(gang for choice in self.below.values() for gang in choice.all_gangs))

    def sets(self, sizes: Sizes) -> Iterator[tuple[str, ...]]:
        """Sets of gangs with which it has what it needs, none of them needless; the first is of the smallest groups."""
        for groups in combinations(self._groups(sizes), self.missing):
            parts = [
                ((group,),) if isinstance(group, str) else tuple(islice(group.sets(sizes), _MAX_SETS_BELOW))
                for group in groups
            ]
            for picked in product(*parts):
                yield tuple(gang for part in picked for gang in part)

    def grown(self, sizes: Sizes, fits: Callable[[tuple[str, ...]], bool]) -> tuple[str, ...] | None:
        """A set of which each gang, one after the other, fits beside those before it; None: too few do."""
        return self._grow(sizes, fits, ())

    def _grow(
        self, sizes: Sizes, fits: Callable[[tuple[str, ...]], bool], beside: tuple[str, ...]
    ) -> tuple[str, ...] | None:
        missing, chosen = self.missing, beside
        for group in self._groups(sizes):
            if not missing:
                break
            if isinstance(group, str):
                more = (*chosen, group) if fits((*chosen, group)) else None
            else:
                more = group._grow(sizes, fits, chosen)  # noqa: SLF001 - of the same class
            if more is not None:
                missing, chosen = missing - 1, more
        return chosen if not missing else None

    def _groups(self, sizes: Sizes) -> list[str | Choice]:
        """Its groups that may be chosen, in order of size."""
        sized: list[tuple[tuple[float, ...], str, str | Choice]] = [(sizes[gang], gang, gang) for gang in self.gangs]
        for choice in self.below.values():
            smallest = next(choice.sets(sizes), ()) if choice.missing else ()
            if smallest:
                total = tuple(map(sum, zip(*(sizes[gang] for gang in smallest), strict=True)))
                sized.append((total, choice.name, choice))
        return [group for *_, group in sorted(sized, key=lambda entry: entry[:2])]
