"""Finds out whether rounds are to be traced."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import structlog

from thalweg_operator.metrics import Metrics

if TYPE_CHECKING:
    from thalweg_operator.observability.traces import OpenTelemetryTracer

_log = structlog.get_logger()
#: Environment variables of OpenTelemetry, either of which turns traces on.
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def find_tracer(metrics: Metrics, environment: Mapping[str, str] = os.environ) -> OpenTelemetryTracer | None:
    """A tracer where an endpoint is configured and the extra ``thalweg[traces]`` is installed, else None.

    A configuration that cannot be used gives a warning: traces are never a reason not to schedule.
    """
    if not any(environment.get(name) for name in _ENDPOINTS):
        return None
    try:
        from thalweg_operator.observability.traces import OpenTelemetryTracer  # noqa: PLC0415 - an extra

        return OpenTelemetryTracer(metrics)
    except ImportError as error:
        _log.warning("no traces", problem=f"install thalweg[traces]: {error}")
    except Exception as error:  # noqa: BLE001 - see above
        _log.warning("no traces", problem=f"the configuration OTEL_* cannot be used: {error!r}")
    return None
