"""Writes the Grafana dashboard of the chart: `python charts/dashboard.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).parent / "thalweg" / "files" / "dashboard.json"
#: Label matchers of every selector: the dashboard's variables.
_SCOPE = 'namespace=~"$namespace", job=~"$job"'
_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 3


class Panel(NamedTuple):
    """One panel.

    Attributes:
        unit: of Grafana.
        queries: legend and expression of each line. In an expression ``SCOPE`` stands for the variables' matchers.
    """

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    description: str = ""


def _quantiles(metric: str, label: str = "", legend: str = "") -> tuple[tuple[str, str], ...]:
    by = f"le, {label}" if label else "le"
    return tuple(
        (
            f"p{percent} {legend}".strip(),
            f"histogram_quantile(0.{percent}, sum by ({by}) (rate({metric}_bucket{{SCOPE}}[$__rate_interval])))",
        )
        for percent in (50, 99)
    )


def _rates(metric: str, *labels: str) -> tuple[tuple[str, str], ...]:
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    return ((legend, f"sum by ({', '.join(labels)}) (rate({metric}{{SCOPE}}[$__rate_interval]))"),)


def _ratio(label: str, part: str, whole: str) -> tuple[tuple[str, str], ...]:
    rates = (f"sum by ({label}) (rate({selector}[$__rate_interval]))" for selector in (part, whole))
    return ((f"{{{{{label}}}}}", " / ".join(rates)),)


def _regret(name: str) -> tuple[tuple[str, str], ...]:
    return (("at {{at}}", f"max by (at) (thalweg_regret_{name}{{SCOPE}})"),)


_BY_AUDITS = "At least: a plan shows it. At most: no plan does better. Empty while no audits run."

ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Overview",
        (
            Panel("Leader", "none", (("{{pod}} {{instance}}", "thalweg_leader{SCOPE}"),)),
            Panel("Pods that wait", "short", (("{{reason}}", "max by (reason) (thalweg_waiting_pods{SCOPE}) > 0"),),
                  "By the code of their reason. No line: no pod waits."),
            Panel("Bindings a second", "ops", _rates("thalweg_bindings_total", "answer")),
            Panel("From creation to binding", "s", _quantiles("thalweg_creation_to_binding_seconds")),
            Panel("Planned, not yet bound", "short", (
                ("reservations", "max(thalweg_reservations{SCOPE})"),
                ("behind our gate", "max(thalweg_gated_pods{SCOPE})"),
                ("quarantined", "max(thalweg_quarantined{SCOPE})"),
            )),
            Panel("Longest wait with the same reason", "s",
                  (("{{reason}}", "max by (reason) (thalweg_longest_wait_seconds{SCOPE}) > 0"),)),
        ),
    ),
    (
        "Rounds",
        (
            Panel("Rounds a second", "ops", _rates("thalweg_rounds_total", "method")),
            Panel("Time of a round, by the worker", "s", _quantiles("thalweg_round_seconds")),
            Panel("Time of the phases, mean", "s", _ratio(
                "phase", "thalweg_round_phase_seconds_sum{SCOPE}", "thalweg_round_phase_seconds_count{SCOPE}"
            )),
            Panel("Pods in a round", "short", _quantiles("thalweg_round_pods")),
            Panel("Pods that every plan of the last round leaves at least", "short",
                  (("at least", "max(thalweg_plan_left_at_least{SCOPE})"),)),
            Panel("Optimality gap of the last plan", "percentunit", (("gap", "max(thalweg_plan_gap_ratio{SCOPE})"),)),
            Panel("Cost of the last plan", "short", (("cost", "max(thalweg_plan_cost{SCOPE})"),)),
            Panel("Rounds that failed, restarts of the worker", "ops", (
                *_rates("thalweg_rounds_failed_total", "cause"),
                ("restarts", "sum(rate(thalweg_worker_restarts_total{SCOPE}[$__rate_interval]))"),
                ("not said", "sum(rate(thalweg_unsaid_total{SCOPE}[$__rate_interval]))"),
            )),
            Panel("Hit rate of the verdict cache", "percentunit", _ratio(
                "filter", 'thalweg_cached_verdicts_total{SCOPE, outcome="hit"}', "thalweg_cached_verdicts_total{SCOPE}"
            )),
            Panel("Placements a second", "ops", _rates("thalweg_placements_total", "outcome")),
        ),
    ),
    (
        "Regret",
        (
            Panel("Pods that wait and could run", "short", (
                *_regret("pods"),
                ("room is free", "max(thalweg_regret_open_pods{SCOPE})"),
            ), _BY_AUDITS),
            *(
                Panel(title, unit, _regret(name), _BY_AUDITS)
                for title, unit, name in (
                    ("Gangs that wait and could run", "short", "gangs"),
                    ("Pods that wait for pods of lower priority", "short", "inversions"),
                    ("Nodes that could be empty", "short", "nodes"),
                    ("Stranded GPUs", "short", "gpus"),
                    ("Stranded memory", "bytes", "memory_bytes"),
                )
            ),
            Panel("Pods whose room placements closed, in an hour", "short", (
                ("{{scheduler}} {{pod_namespace}} {{reason}}",
                 "sum by (scheduler, pod_namespace, reason) (increase(thalweg_regret_closed_pods_total{SCOPE}[1h]))"),
            )),
            Panel("Audits a second", "ops", _rates("thalweg_regret_audits_total", "outcome")),
        ),
    ),
    (
        "The API server",
        (
            Panel("Age of the snapshot", "s",
                  (("{{kind}}", 'max by (kind) (thalweg_watch_age_seconds{SCOPE, kind!~"podgroups[.].*"})'),)),
            Panel("Lag of the watch", "s", _quantiles("thalweg_watch_lag_seconds")),
            Panel("Watch events a second", "ops", _rates("thalweg_watch_events_total", "kind")),
            Panel("Lists repeated a second", "ops", _rates("thalweg_relists_total", "kind")),
            Panel("Writes that wait", "short",
                  (("{{queue}} {{state}}", "sum by (queue, state) (thalweg_queued_writes{SCOPE})"),)),
            Panel("Retries a second", "ops", _rates("thalweg_write_retries_total", "queue", "cause")),
            Panel("Writes of claims a second", "ops", _rates("thalweg_claim_writes_total", "kind", "answer")),
            Panel("Evictions a second", "ops", _rates("thalweg_evictions_total", "kind", "answer")
                  + _rates("thalweg_eviction_dry_runs_total", "kind", "answer")),
            Panel("Events a second", "ops", _rates("thalweg_events_total", "reason", "outcome")),
            Panel("Refused inputs a second", "ops", _rates("thalweg_refused_inputs_total", "kind", "field")),
            Panel("Unreadable objects a second", "ops", _rates("thalweg_unreadable_objects_total", "kind")),
            Panel("Places for replacements by outcome, a second", "ops", _rates("thalweg_moves_total", "outcome")),
            Panel("Reads and writes of what classes of pods use, a second", "ops",
                  _rates("thalweg_saved_usage_total", "outcome")),
        ),
    ),
    (
        "Measured usage",
        (
            Panel("Nodes by what counts on them", "short",
                  (("{{state}}", "max by (state) (thalweg_usage_nodes{SCOPE})"),),
                  "Empty while no policy asks for measured usage."),
            Panel("Reads a second", "ops", _rates("thalweg_usage_reads_total", "source", "outcome")),
            Panel("Time of a poll", "s", _quantiles("thalweg_usage_poll_seconds")),
        ),
    ),
    (
        "View",
        (
            Panel("Requests a second", "ops", _rates("thalweg_view_requests_total", "operation", "status")),
        ),
    ),
    (
        "kube-scheduler's extender",
        (
            Panel("Answers a second", "ops", _rates("thalweg_extender_answers_total", "verb", "outcome")),
            Panel("Time of an answer", "s", _quantiles("thalweg_extender_seconds", "verb", "{{verb}}")),
            Panel("Attempts held by cause, a second", "ops", _rates("thalweg_held_attempts_total", "cause")),
            Panel("Nominations by outcome, a second", "ops", _rates("thalweg_steered_total", "outcome")),
            Panel("Writes to pods that kube-scheduler binds, a second", "ops",
                  _rates("thalweg_steering_writes_total", "kind", "answer")),
            Panel("Time until the certificates expire", "s", (
                ("{{file}}", "thalweg_extender_certificate_expiration_timestamp_seconds{SCOPE} - time()"),
                ("kube-scheduler's",
                 "(thalweg_extender_client_certificate_expiration_timestamp_seconds{SCOPE} > 0) - time()"),
            )),
        ),
    ),
    (
        "The process",
        (
            Panel("Memory", "bytes", (
                ("operator", "sum(process_resident_memory_bytes{SCOPE})"),
                ("worker", "sum(thalweg_worker_memory_bytes{SCOPE})"),
                ("worker's limit", "sum(thalweg_worker_memory_limit_bytes{SCOPE})"),
                ("limit of the container", "sum(thalweg_memory_limit_bytes{SCOPE})"),
            )),
            Panel("CPU of the operator", "short",
                  (("{{pod}} {{instance}}", "rate(process_cpu_seconds_total{SCOPE}[$__rate_interval])"),)),
            Panel("Lag of the event loop", "s", _quantiles("thalweg_event_loop_lag_seconds")),
            Panel("Longest lag and longest step of the event loop", "s", (
                ("lag", "max(thalweg_event_loop_longest_lag_seconds{SCOPE})"),
                ("busy", "max(thalweg_event_loop_longest_busy_seconds{SCOPE})"),
            )),
            Panel("Nodes and pods in the snapshot", "short",
                  (("nodes", "max(thalweg_nodes{SCOPE})"), ("pods", "max(thalweg_pods{SCOPE})"))),
            Panel("Reasons written a second", "ops",
                  (("reasons", "sum(rate(thalweg_reasons_written_total{SCOPE}[$__rate_interval]))"),)),
            Panel("Verdicts computed a second", "ops", _rates("thalweg_cached_verdict_rows_total", "filter")),
            Panel("Spans of traces a second", "ops", _rates("thalweg_spans_total", "outcome")),
            Panel("Version", "none", (("{{version}} {{pod}}", "thalweg_build_info{SCOPE}"),)),
        ),
    ),
)  # fmt: skip


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        place = {"x": 0, "y": top, "w": _WIDTH * _COLUMNS, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": place,
                       "panels": []})  # fmt: skip
        top += 1
        for at, panel in enumerate(row):
            place = {"x": at % _COLUMNS * _WIDTH, "y": top + at // _COLUMNS * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            panels.append(_panel(panel, len(panels) + 1, place))
        top += -(-len(row) // _COLUMNS) * _HEIGHT
    return {
        "title": "Thalweg",
        "uid": "thalweg",
        "tags": ["kubernetes", "scheduler", "thalweg"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": panels,
    }


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": source,
                "expr": expression.replace("SCOPE", _SCOPE),
                "legendFormat": legend,
            }
            for at, (legend, expression) in enumerate(panel.queries)
        ],
    }


def _variables() -> list[dict[str, Any]]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    queries = {
        "namespace": "label_values(thalweg_build_info, namespace)",
        "job": 'label_values(thalweg_build_info{namespace=~"$namespace"}, job)',
    }
    return [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
        *(
            {
                "name": name,
                "type": "query",
                "label": name.capitalize(),
                "datasource": source,
                "query": {"query": query, "refId": name},
                "refresh": 2,
                "includeAll": True,
                "multi": True,
                "allValue": ".*",
                "current": {"text": "All", "value": "$__all"},
            }
            for name, query in queries.items()
        ),
    ]


def as_text() -> str:
    """The content of the file."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(as_text())
