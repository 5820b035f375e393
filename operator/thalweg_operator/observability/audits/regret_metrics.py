"""What audits say, as metrics."""

from __future__ import annotations

from collections import Counter
from typing import Final

from flowcore.model.regret import RegretFigure, RegretRecord
from flowcore.model.resources import MEMORY
from flowcore.questions.audit.finding import FindingKind
from thalweg_operator.metrics import Metrics

#: Pairs of scheduler and namespace with series of their own. Pods name any scheduler, so the others count as one.
_MOST_PAIRS: Final = 100
_OTHERS: Final = ("others", "others")


class RegretMetrics:
    """Sets the metrics after each audit."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._of_findings = {
            FindingKind.WAITING_PODS: metrics.regret_pods,
            FindingKind.WAITING_GANGS: metrics.regret_gangs,
            FindingKind.PRIORITY_INVERSIONS: metrics.regret_inversions,
            FindingKind.EMPTY_NODES: metrics.regret_nodes,
        }
        self._pairs: set[tuple[str, str]] = set()

    def failed(self) -> None:
        """An audit failed; the metrics stay those of the last one that did not."""
        self._metrics.regret_audits.labels("failed").inc()

    def audited(self, record: RegretRecord, *, first: bool) -> None:
        """An audit is done.

        Args:
            record: its rooms are those of which no audit has told since their pods wait.
            first: of this process. What it tells of is old, and was perhaps counted before a restart.
        """
        self._metrics.regret_audits.labels("done").inc()
        least, most = Counter[object](), Counter[object]()
        for figure in record.figures:
            gauge = self._gauge_of(figure)
            least[gauge] += figure.at_least
            most[gauge] += figure.at_most
        for gauge in (*self._of_findings.values(), self._metrics.regret_gpus, self._metrics.regret_memory):
            gauge.labels("least").set(least[gauge])
            gauge.labels("most").set(most[gauge])
        self._metrics.regret_open_pods.set(record.open_pods)
        for room in () if first else record.closed:
            pair = room.scheduler, room.namespace
            if len(self._pairs) < _MOST_PAIRS:
                self._pairs.add(pair)
            scheduler, namespace = pair if pair in self._pairs else _OTHERS
            self._metrics.regret_closed.labels(scheduler, namespace, room.reason).inc(room.pods)

    def _gauge_of(self, figure: RegretFigure) -> object:
        if figure.finding == FindingKind.STRANDED_ROOM:
            return self._metrics.regret_memory if figure.resource == MEMORY else self._metrics.regret_gpus
        return self._of_findings[FindingKind(figure.finding)]
