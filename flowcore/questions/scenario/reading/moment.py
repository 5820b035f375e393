"""The time of a dump: what its objects say of when it was made. Ages count up to it, not up to today."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median_high
from typing import Any, Final

from flowcore.model.errors import ModelError

#: Annotation of the list that ``thalweg dump`` writes: when it asked the API server, as RFC 3339 has it.
DUMPED: Final = "scheduling.thalweg/dumped"
_DAY: Final = 86_400.0
#: Of a dump whose objects name no time, as manifests by hand do: 2026-01-01T00:00:00Z.
NO_TIME: Final = 1_767_225_600.0
#: How far a time may lie after what most nodes report last; and after most objects, where no node reports a time.
_AFTER_HEARTBEATS, _AFTER_OBJECTS = _DAY, 366 * _DAY
#: More seconds than lie between any two times that can be written.
_LONGEST_GRACE = 10**12
_OF_CONDITIONS = ("lastHeartbeatTime", "lastTransitionTime", "lastProbeTime", "lastUpdateTime")


def seconds_of(text: Any) -> float:
    """Seconds since the epoch of a time as RFC 3339 has it, UTC where it names no zone; 0 for anything else.

    In UTC too the time must lie in the years 1 to 9999.
    """
    try:
        when = datetime.fromisoformat(text)
        return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).astimezone(UTC).timestamp()
    except (TypeError, ValueError, OverflowError):
        return 0.0


def moment_text(moment: float) -> str:
    """A moment as RFC 3339 has it, in UTC; "" for 0.

    Args:
        moment: seconds since the epoch.
    """
    return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z") if moment else ""


def parse_moment(text: str) -> float:
    """Seconds since the epoch.

    Raises:
        ModelError: it is no time as RFC 3339 has it.
    """
    seconds = seconds_of(text)
    if not seconds or "T" not in text.upper():
        raise ModelError("", f'"{text}" is not a time such as 2026-11-23T09:30:00Z')
    return seconds


@dataclass(slots=True)
class Times:
    """The times that the objects of a dump name.

    Attributes:
        written: when saved states and dumps were written, which say so themselves.
    """

    written: list[float] = field(default_factory=list)
    _newest: list[tuple[float, str]] = field(default_factory=list)
    _heartbeats: list[float] = field(default_factory=list)

    def read_list(self, listed: dict[str, Any]) -> None:
        """Reads a list of objects: that of ``thalweg dump`` says when it was written."""
        annotations = _dict(_dict(listed.get("metadata")).get("annotations"))
        if written := seconds_of(annotations.get(DUMPED)):
            self.written.append(written)

    def read(self, item: dict[str, Any], shown: str) -> None:
        """Reads an object of the API.

        Args:
            shown: what names it in messages.
        """
        newest, kind = max(_times_of(item), default=0.0), item.get("kind")
        if newest > 0:
            self._newest.append((newest, shown))
        reported = [seconds_of(each.get("lastHeartbeatTime")) for each in _conditions(item) if kind == "Node"]
        if kind == "NodeMetrics":
            reported.append(newest)
        if max(reported, default=0.0) > 0:
            self._heartbeats.append(max(reported))

    def moment(self) -> float:
        """The newest time, in seconds since the epoch; ``NO_TIME`` where there is none.

        Clocks that run ahead do not make everything else old. A time does not count that lies more than a day after
        what most nodes reported last: all kubelets of a sound cluster report within minutes. Where no node reports, the
        limit is a year after the times of most objects.
        """
        if self.written:
            return max(self.written)
        limit = self._limit()
        return max((newest for newest, _ in self._newest if newest <= limit), default=NO_TIME)

    def too_late(self) -> list[str]:
        """What names the objects with times that do not count."""
        limit = self._limit()
        return [] if self.written else [shown for newest, shown in self._newest if newest > limit]

    def _limit(self) -> float:
        if self._heartbeats:
            return median_high(self._heartbeats) + _AFTER_HEARTBEATS
        if self._newest:
            return median_high(newest for newest, _ in self._newest) + _AFTER_OBJECTS
        return 0.0


def _times_of(item: dict[str, Any]) -> Iterator[float]:
    """All times of the past that an object names, as far as its fields are of the kinds that they should be."""
    metadata, status = _dict(item.get("metadata")), _dict(item.get("status"))
    yield seconds_of(metadata.get("creationTimestamp"))
    deletion, grace = seconds_of(metadata.get("deletionTimestamp")), metadata.get("deletionGracePeriodSeconds")
    if deletion:  # it is when the pod is to be gone; whole numbers of JSON may be larger than any float
        yield deletion - (min(max(grace, 0), _LONGEST_GRACE) if isinstance(grace, int) else 0)
    yield from (seconds_of(each.get("time")) for each in _dicts(metadata.get("managedFields")))
    yield seconds_of(item.get("timestamp"))
    yield seconds_of(status.get("startTime"))
    yield from (seconds_of(each.get(name)) for each in _conditions(item) for name in _OF_CONDITIONS)
    for name in ("containerStatuses", "initContainerStatuses"):
        for container in _dicts(status.get(name)):
            for state in map(_dict, _dict(container.get("state")).values()):
                yield from (seconds_of(state.get("startedAt")), seconds_of(state.get("finishedAt")))


def _conditions(item: dict[str, Any]) -> list[dict[str, Any]]:
    return _dicts(_dict(item.get("status")).get("conditions"))


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
