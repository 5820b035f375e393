"""What is kept of an audit: its figures, and the rooms that placements closed."""

from __future__ import annotations

from flowcore.model.regret import ClosingReason, RegretFigure, RegretRecord
from flowcore.questions.audit.answer_audit import AuditAnswer


def record_of(answer: AuditAnswer, now: float) -> RegretRecord:
    """The record of an audit.

    Args:
        now: of the cluster that was audited, in seconds since the epoch.
    """
    figures = (
        RegretFigure(finding.kind, finding.resource, finding.now, finding.at_least, finding.at_most)
        for finding in answer.findings
    )
    closed = [room for room in answer.closed if room.pod]
    open_pods = sum(room.pods for room in answer.closed if room.reason is ClosingReason.OPEN_ROOM)
    return RegretRecord(now, tuple(figures), open_pods, tuple(closed))
