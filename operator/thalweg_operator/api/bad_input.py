"""Refused inputs: each is counted, and the first of each kind and field is logged.

The names of kinds and fields come from the code, never from the input, so the number of labels is bounded.
"""

from __future__ import annotations

import structlog

from thalweg_operator.metrics import Metrics

_log = structlog.get_logger()
#: The line of the log.
FIRST_REFUSED = "input refused, and more of the kind and field are counted without a line"


class BadInput:
    """Counts and logs refused inputs."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._logged: set[tuple[str, str]] = set()

    def refuse(self, kind: str, field: str, name: str, problem: str) -> None:
        """Counts a refused input. Logs it if it is the first of its kind and field.

        Args:
            kind: kind of input: pod, node, watch, extender request.
            field: refused part, for example spec.topologySpreadConstraints.
            name: name of the object, for example namespace/name.
            problem: a sentence that says what is wrong.
        """
        self._metrics.refused_inputs.labels(kind, field).inc()
        if (kind, field) not in self._logged:
            self._logged.add((kind, field))
            _log.warning(FIRST_REFUSED, kind=kind, field=field, name=name, problem=problem)
