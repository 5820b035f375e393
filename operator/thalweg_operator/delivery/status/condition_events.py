"""Events about policies and queues: a condition became false, or true again."""

from __future__ import annotations

from typing import Any, Final, Protocol

from flowcore.api.kinds import ObjectKind
from thalweg_operator.api.writes.events import EventWriter, Subject

#: Conditions that follow the pods that there are: a Deployment that is scaled to none is no event of its policy.
_WITHOUT_EVENTS: Final = frozenset({"Effective"})


class _Named(Protocol):
    """An object of the cluster."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def uid(self) -> str:
        """Its uid."""
        ...


class ConditionEvents:
    """Writes an Event for each condition that changes, of objects of one kind."""

    def __init__(self, events: EventWriter, kind: ObjectKind) -> None:
        self._events, self._kind = events, kind

    def status_written(self, record: _Named, before: dict[str, Any] | None, status: dict[str, Any]) -> None:
        """A status was written.

        Args:
            before: the status that this process wrote last; None: none. Then only false conditions are news.
        """
        known = {each["type"]: each for each in (before or {}).get("conditions", ())}
        subject = Subject(self._kind.api_version, self._kind.kind, "", record.name, record.uid)
        for condition in status["conditions"]:
            if condition["type"] in _WITHOUT_EVENTS:
                continue
            old, warning = known.get(condition["type"]), condition["status"] == "False"
            if warning if old is None else (old["status"], old["reason"]) != (condition["status"], condition["reason"]):
                message = f"Condition {condition['type']} is {condition['status']}: {condition['message']}"
                self._events.write_about(subject, condition["reason"], message, action="Reconciling", warning=warning)
