"""How long room has been kept for gangs, and when it may be kept again.

Room is kept for one unit at a time, until a deadline. A unit that is not whole by then rests, twice as long with each
deadline that it misses, and so does its namespace: neither one gang nor many gangs of one namespace keep room for ever.
A unit rests longer than its namespace at first, so that another gang of the namespace has its turn before it.

A round is told these values and says what they are afterwards; whoever runs rounds hands them on from one to the next.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

#: Seconds of the longest rest.
LONGEST_REST = 86_400.0
#: So many units and namespaces are remembered, those that last held room or rest longest.
_MOST = 1_000


class Hold(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Of one unit, or of one namespace.

    Attributes:
        ends: when room is kept no longer; None: no hold has begun.
        until: when its rest ends.
        rest: seconds of its next rest.
    """

    name: str
    ends: float | None
    until: float
    rest: float


class Holds(msgspec.Struct, frozen=True):
    """All that is remembered, by name.

    Attributes:
        clock: seconds of a monotonic clock, now; all times are of that clock.
    """

    clock: float = 0.0
    known: tuple[Hold, ...] = ()

    def settled(self) -> Holds:
        """As it is now: holds whose deadline has passed rest, and who kept quiet for as long as a rest is forgotten."""
        found = []
        for each in self.known:
            now = each
            if now.ends is not None and now.ends <= self.clock:
                now = Hold(now.name, None, now.ends + now.rest, min(2 * now.rest, LONGEST_REST))
            if now.ends is not None or self.clock < now.until + now.rest:
                found.append(now)
        return Holds(self.clock, tuple(found))

    @property
    def resting(self) -> set[str]:
        """Names of those that rest: no room is kept for them."""
        return {each.name for each in self.known if each.ends is None and self.clock < each.until}

    @property
    def rests(self) -> dict[str, float]:
        """Seconds of the next rest of all that ever held room, by name: who missed fewer deadlines comes first."""
        return {each.name: each.rest for each in self.known}

    def begun(self, unit: str, namespaces: Iterable[str], longest: float) -> Holds:
        """With room kept for a unit, for so many seconds at most; a hold that has begun goes on."""
        known = {each.name: each for each in self.known}
        for name, rest in ((unit, 2 * longest), *((name, longest) for name in namespaces)):
            before = known.get(name)
            if before is None:
                known[name] = Hold(name, self.clock + longest, self.clock, min(rest, LONGEST_REST))
            elif before.ends is None:
                known[name] = msgspec.structs.replace(before, ends=self.clock + longest)
        latest = sorted(known.values(), key=lambda each: (-(each.ends or each.until), each.name))[:_MOST]
        return Holds(self.clock, tuple(sorted(latest, key=lambda each: each.name)))

    def ended(self, unit: str, namespaces: Iterable[str]) -> Holds:
        """With a unit placed: if room was kept for it, that was of use, and it is as if it never had been."""
        if all(each.name != unit for each in self.known):
            return self
        gone = {unit, *namespaces}
        return Holds(self.clock, tuple(each for each in self.known if each.name not in gone))


#: Nothing is remembered.
NO_HOLDS = Holds()
