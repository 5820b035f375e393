"""Events about policies: a condition became false, or true again."""

from __future__ import annotations

from typing import Any

from thalweg_operator.api.events import EventWriter, Subject
from thalweg_operator.policies.store import PolicyRecord


class PolicyEvents:
    """Writes an Event for each condition of a policy that changes."""

    def __init__(self, events: EventWriter) -> None:
        self._events = events

    def status_written(self, record: PolicyRecord, before: dict[str, Any] | None, status: dict[str, Any]) -> None:
        """A status was written.

        Args:
            before: the status that this process wrote last; None: none. Then only false conditions are news.
        """
        known = {each["type"]: each for each in (before or {}).get("conditions", ())}
        subject = Subject("scheduling.thalweg/v1alpha1", "FlowSchedulingPolicy", "", record.name, record.uid)
        for condition in status["conditions"]:
            old, warning = known.get(condition["type"]), condition["status"] == "False"
            if warning if old is None else (old["status"], old["reason"]) != (condition["status"], condition["reason"]):
                message = f"Condition {condition['type']} is {condition['status']}: {condition['message']}"
                self._events.write_about(subject, condition["reason"], message, action="Reconciling", warning=warning)
