"""Rounds of few pods for a while, after a round that was too large: namespaces take turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flowcore.model.pods import Pod


@dataclass(slots=True)
class SmallRounds:
    """Limit of pods and gangs per round.

    Attributes:
        max_items: the limit.
        until: time when the limit ends.
        remaining: items of this cycle that had no turn yet. Newcomers join the next cycle, so a namespace that creates
            pods all the time takes no turns of others.
        done: items of this cycle that had their turn.
        helped: see ``Quarantine.choose``, when the cycle began.
    """

    max_items: int
    until: float
    remaining: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    helped: int = 0

    def next_part(self, items: Mapping[str, Sequence[Pod]], keys: Sequence[str], helped: int) -> Sequence[str]:
        """The items of the next round. Each cycle begins with all ``keys``; it is over when each had its turn."""
        self.remaining.intersection_update(keys)
        self.done.intersection_update(keys)
        if not self.remaining:
            self.remaining, self.done, self.helped = set(keys), set(), helped
        part = [item for item in _by_turns(items, keys) if item in self.remaining][: self.max_items]
        self.remaining.difference_update(part)
        self.done.update(part)
        return part

    def has_more(self, keys: Sequence[str], helped: int) -> bool:
        """Whether another round has to follow: some had no turn yet, or something may have helped those that had."""
        return len(self.done) < len(keys) or self.helped != helped


def _by_turns(items: Mapping[str, Sequence[Pod]], keys: Sequence[str]) -> Sequence[str]:
    """The items of each namespace in turn, so that a namespace with many pods does not go before one with few."""
    places: list[tuple[int, int, str]] = []
    counts: Counter[str] = Counter()
    for turn, key in enumerate(keys):
        namespace = items[key][0].namespace
        places.append((counts[namespace], turn, key))
        counts[namespace] += 1
    return [key for _, _, key in sorted(places)]
