"""What was refused: counted each time, logged once for each kind of thing and field.

Kinds and fields are named by our own code, never by the input, so nothing here can grow.
"""

from __future__ import annotations

import structlog

from thalweg_operator.metrics import Metrics

_log = structlog.get_logger()


class BadInput:
    """See the module."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._logged: set[tuple[str, str]] = set()

    def refuse(self, kind: str, field: str, name: str, problem: str) -> None:
        """Counts a refused input, and logs the first one of its kind and field.

        Args:
            kind: what it is: pod, node, watch, extender request.
            field: which part of it is refused, for example spec.topologySpreadConstraints.
            name: the object, for example namespace/name.
            problem: what is wrong, in a sentence.
        """
        self._metrics.refused_inputs.labels(kind, field).inc()
        if (kind, field) not in self._logged:
            self._logged.add((kind, field))
            _log.warning("input refused", kind=kind, field=field, name=name, problem=problem)
