"""Stands in for the shell where only writes matter."""

from __future__ import annotations

import math

from thalweg_operator.reservations.effects import Write
from thalweg_operator.reservations.events import Answer

from flowcore.model.pods import Pod


class RecordingShell:
    """Wants each write until so many refusals, and records the answers.

    Attributes:
        answers: each answer, and its reason.
    """

    def __init__(self, max_refusals: float = math.inf) -> None:
        self.max_refusals = max_refusals
        self.answers: list[tuple[Answer, str]] = []

    @property
    def refusals(self) -> list[str]:
        """Reasons of writes that will be tried again."""
        return [reason for answer, reason in self.answers if answer is Answer.RETRYING]

    @property
    def ended(self) -> bool:
        """Whether a write is over."""
        return any(answer is not Answer.RETRYING for answer, _ in self.answers)

    def is_wanted(self, _write: Write) -> bool:
        """See Shell."""
        return len(self.refusals) < self.max_refusals

    def shows(self, _pod: Pod) -> bool:
        """See Shell."""
        return True

    def answered(self, _write: Write, answer: Answer, reason: str = "") -> None:
        """See Shell."""
        self.answers.append((answer, reason))
