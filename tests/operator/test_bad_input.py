"""What was refused is counted each time and logged once."""

from __future__ import annotations

from structlog.testing import capture_logs
from thalweg_operator.bad_input import BadInput
from thalweg_operator.metrics import Metrics


def test_logged_once_for_each_kind_and_field_and_counted_always():
    """A thousand objects with the same flaw write one line; each of them is counted."""
    metrics = Metrics()
    refused = BadInput(metrics)
    with capture_logs() as logs:
        for number in range(1000):
            refused.refuse("pod", "metadata.labels", f"team/{number}", "the labels are longer than 16 KiB")
        refused.refuse("pod", "spec.affinity", "team/0", "more than 256 terms")
    assert [(each["kind"], each["field"], each["name"]) for each in logs] == [
        ("pod", "metadata.labels", "team/0"),
        ("pod", "spec.affinity", "team/0"),
    ]
    count = metrics.registry.get_sample_value
    assert count("thalweg_refused_inputs_total", {"kind": "pod", "field": "metadata.labels"}) == 1000
    assert count("thalweg_refused_inputs_total", {"kind": "pod", "field": "spec.affinity"}) == 1
