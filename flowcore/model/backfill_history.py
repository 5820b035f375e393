"""How long room has been kept for gangs, and when it may be kept again.

Room is kept for one unit at a time, until a deadline. A unit that is not whole by then rests, twice as long with each
deadline that it misses, and so does its namespace: neither one gang nor many gangs of one namespace keep room for ever.
A unit rests longer than its namespace at first, so that another gang of the namespace has its turn before it.

A round takes these values and returns the new ones; the caller hands them on from one round to the next.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

#: Seconds of the longest rest.
MAX_BACKOFF = 86_400.0
#: Most units and namespaces that are remembered: the ones that last held room or rest longest.
_MAX_RECORDS = 1_000


class BackfillRecord(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Backfill of one unit or one namespace.

    Attributes:
        deadline: when room is kept no longer; None: no hold has begun.
        backoff_until: when its rest ends.
        next_backoff: seconds of its next rest.
    """

    name: str
    deadline: float | None
    backoff_until: float
    next_backoff: float


class BackfillHistory(msgspec.Struct, frozen=True):
    """All that is remembered, by name.

    Attributes:
        now: seconds of a monotonic clock, now; all times are of that clock.
    """

    now: float = 0.0
    records: tuple[BackfillRecord, ...] = ()

    def expired(self) -> BackfillHistory:
        """As it is now: holds whose deadline has passed rest, and who kept quiet for as long as a rest is forgotten."""
        records = []
        for group_record in self.records:
            record = group_record
            if record.deadline is not None and record.deadline <= self.now:
                record = BackfillRecord(
                    record.name, None, record.deadline + record.next_backoff, min(2 * record.next_backoff, MAX_BACKOFF)
                )
            if record.deadline is not None or self.now < record.backoff_until + record.next_backoff:
                records.append(record)
        return BackfillHistory(self.now, tuple(records))

    @property
    def backing_off(self) -> set[str]:
        """Names of units that rest: no room is kept for them."""
        return {each.name for each in self.records if each.deadline is None and self.now < each.backoff_until}

    @property
    def next_backoffs(self) -> dict[str, float]:
        """Seconds of the next rest of all that ever held room, by name: who missed fewer deadlines comes first."""
        return {each.name: each.next_backoff for each in self.records}

    def with_reserved(self, group: str, namespaces: Iterable[str], max_seconds: float) -> BackfillHistory:
        """With room kept for a unit, for ``max_seconds`` at most; a hold that has begun goes on."""
        records = {each.name: each for each in self.records}
        for name, backoff in ((group, 2 * max_seconds), *((name, max_seconds) for name in namespaces)):
            before = records.get(name)
            if before is None:
                records[name] = BackfillRecord(name, self.now + max_seconds, self.now, min(backoff, MAX_BACKOFF))
            elif before.deadline is None:
                records[name] = msgspec.structs.replace(before, deadline=self.now + max_seconds)
        latest = sorted(records.values(), key=lambda record: (-(record.deadline or record.backoff_until), record.name))[
            :_MAX_RECORDS
        ]
        return BackfillHistory(self.now, tuple(sorted(latest, key=lambda record: record.name)))

    def with_placed(self, group: str, namespaces: Iterable[str]) -> BackfillHistory:
        """With a unit placed: if room was kept for it, that was of use, and it is as if it never had been."""
        if all(each.name != group for each in self.records):
            return self
        gone = {group, *namespaces}
        return BackfillHistory(self.now, tuple(each for each in self.records if each.name not in gone))


#: Nothing is remembered.
NO_BACKFILL_HISTORY = BackfillHistory()
