"""The table that says which metric of ours stands for which of kube-scheduler's."""

import re
from pathlib import Path

from thalweg_operator.metrics import Metrics

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
#: Of kube-scheduler 1.36 and 1.37, without its prefix (pkg/scheduler/metrics/metrics.go).
UPSTREAM = [
    "async_api_call_execution_duration_seconds", "async_api_call_execution_total", "batch_attempts_total",
    "batch_cache_flushed_total", "batch_rescore_attempts_total", "batch_rescore_duration_seconds", "cache_size",
    "dra_bindingconditions_allocations_total", "dra_bindingconditions_wait_duration_seconds",
    "event_handling_duration_seconds", "framework_extension_point_duration_seconds", "generated_placements_total",
    "get_node_hint_duration_seconds", "goroutines", "inflight_events", "pending_async_api_calls", "pending_pods",
    "permit_wait_duration_seconds", "placement_evaluation_duration_seconds", "placement_evaluations_total",
    "plugin_evaluation_total", "plugin_execution_duration_seconds", "pod_scheduled_after_flush_total",
    "pod_scheduling_attempts", "pod_scheduling_sli_duration_seconds", "podgroup_schedule_attempts_total",
    "podgroup_scheduling_algorithm_duration_seconds", "podgroup_scheduling_attempt_duration_seconds",
    "pre_queueing_hint_evaluations_total", "preemption_attempts_total", "preemption_evaluation_duration_seconds",
    "preemption_execution_duration_seconds", "preemption_goroutines_duration_seconds",
    "preemption_goroutines_execution_total", "preemption_pdb_violations_total", "preemption_victims",
    "preemption_workload_disruptions", "queue_incoming_entities_total", "queue_incoming_pods_total",
    "queued_entities", "queueing_hint_execution_duration_seconds", "resourceclaim_creates_total",
    "schedule_attempts_total", "scheduling_algorithm_duration_seconds", "scheduling_attempt_duration_seconds",
    "store_schedule_results_duration_seconds", "unschedulable_pods", "workload_preemption_attempts_total",
    "workload_preemption_victims",
]  # fmt: skip


def rows() -> list[list[str]]:
    """The cells of the table."""
    section = PAGE.read_text().partition("## kube-scheduler's metrics\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_metric_of_kube_scheduler_has_a_row() -> None:
    """And none twice."""
    named = [name for row in rows() for name in re.findall(r"`scheduler_(\w+)`", row[0])]
    assert sorted(named) == sorted(UPSTREAM)


def test_our_metrics_in_the_table_exist() -> None:
    """A row without one says that there is none."""
    known = {sample for family in Metrics().registry.collect() for sample in (family.name, f"{family.name}_total")}
    for upstream, ours, verdict, _ in rows():
        names = re.findall(r"`(\w+)`", ours)
        assert set(names) <= known, upstream
        assert verdict == "none" if not names else verdict in ("same", "differs"), upstream
