"""OpenTelemetry traces: a span for each round, with a span for each of its phases.

Import this module only where the extra ``thalweg[traces]`` is installed (``find_tracer``). Spans are sent in batches by
a thread of the SDK, over OTLP/HTTP. What cannot be sent is dropped and counted: rounds never wait for it. The SDK
itself reads the environment variables OTEL_*.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from importlib.metadata import version
from threading import Thread

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Span, StatusCode, set_span_in_context

from thalweg_operator.metrics import Metrics
from thalweg_operator.planning.reports.phases import RoundPhase
from thalweg_operator.planning.reports.round_metrics import RoundTrace

_log = structlog.get_logger()
#: Seconds that the last spans may take when the operator ends.
_FLUSH_SECONDS = 1.0


class OpenTelemetryTracer:
    """Makes the spans of rounds: see ``RoundTracer``."""

    def __init__(self, metrics: Metrics) -> None:
        # Failures are counted, and logged once: not with each batch.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        resource = Resource.create(
            {"service.name": os.environ.get("OTEL_SERVICE_NAME", "thalweg"), "service.version": version("thalweg")}
        )
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(_CountingExporter(OTLPSpanExporter(), metrics)))
        self._tracer = self._provider.get_tracer("thalweg")

    def round_ended(self, trace: RoundTrace) -> None:
        """Records the spans of a round."""
        reply, began = trace.reply, trace.ended - trace.seconds
        attributes: dict[str, int | float | str] = {"thalweg.round": trace.number, "thalweg.pods": trace.pods}
        if reply is not None:
            attributes |= {
                "thalweg.placed": len(reply.placements),
                "thalweg.unplaced": len(reply.unplaced),
                "thalweg.cost": reply.cost,
                "thalweg.gap": reply.gap,
                "thalweg.method": reply.method,
                "thalweg.filter_seconds": reply.filter_seconds,
            }
        span = self._tracer.start_span("round", start_time=_nanoseconds(began), attributes=attributes)
        if trace.problem:
            span.set_status(StatusCode.ERROR, trace.problem)
        for phase in trace.phases:
            child = self._phase(span, phase, began)
            if phase.name == "worker" and reply is not None:
                # How the way there and the way back share the rest of the time is not known: half each.
                worker_began = began + phase.start + max(0.0, phase.seconds - reply.seconds) / 2
                for worker_phase in reply.phases:
                    self._phase(child, worker_phase, worker_began)
        span.end(_nanoseconds(trace.ended))

    def _phase(self, parent: Span, phase: RoundPhase, began: float) -> Span:
        """The span of a phase of what began at that time, in seconds since the epoch."""
        start = began + phase.start
        span = self._tracer.start_span(phase.name, context=set_span_in_context(parent), start_time=_nanoseconds(start))
        span.end(_nanoseconds(start + phase.seconds))
        return span

    def close(self) -> None:
        """Sends what is left, for a moment at most."""
        thread = Thread(target=self._provider.shutdown, daemon=True)
        thread.start()
        thread.join(_FLUSH_SECONDS)


class _CountingExporter(SpanExporter):
    """An exporter that counts spans, and logs the first failure in a row."""

    def __init__(self, exporter: SpanExporter, metrics: Metrics) -> None:
        self._exporter, self._spans = exporter, metrics.spans
        self._failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Writes spans."""
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001 - whatever it is, rounds go on
            _log.debug("spans not sent", problem=repr(error))
            result = SpanExportResult.FAILURE
        failed = result is not SpanExportResult.SUCCESS
        self._spans.labels("failed" if failed else "exported").inc(len(spans))
        if failed != self._failing:
            self._failing = failed
            if failed:
                _log.warning("traces are not exported", problem="the endpoint does not take them")
            else:
                _log.info("traces are exported again")
        return result

    def shutdown(self) -> None:
        """Closes the exporter."""
        self._exporter.shutdown()


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
