"""``plan`` and ``why --nodes`` read NodeMetrics and PodMetrics of a dump, for policies that ask for measured load."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.cli import Manifest, by_pod, node, pod, why_nodes
from thalweg.main import main

from flowcore.questions.scenario.reading.dump_commands import METRICS_COMMAND

_NOW = datetime.now(UTC) - timedelta(days=3)


def _time(seconds_ago: float = 0.0) -> str:
    return (_NOW - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _policy(utilisation: str) -> Manifest:
    return {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowSchedulingPolicy",
        "metadata": {"name": "by-use"},
        "spec": {"selects": {"schedulerNames": ["thalweg"]}, "cost": {"utilisation": utilisation}},
    }


def _metrics(kind: str, name: str, cpu: str, memory: str = "1Gi", *, seconds_ago: float = 0.0) -> Manifest:
    usage = {"cpu": cpu, "memory": memory}
    of_node = kind == "NodeMetrics"
    return {
        "apiVersion": "metrics.k8s.io/v1beta1",
        "kind": kind,
        "metadata": {"name": name} | ({} if of_node else {"namespace": "default"}),
        "timestamp": _time(seconds_ago),
        "window": "20s",
        **({"usage": usage} if of_node else {"containers": [{"name": "c", "usage": usage}]}),
    }


def _pod(name: str, cpu: str, node_name: str = "", *, image: str = "web:1", seconds_ago: float = 3600) -> Manifest:
    found: dict[str, Any] = pod(name, cpu, schedulerName="thalweg")
    found["metadata"]["creationTimestamp"] = _time(seconds_ago)
    found["spec"]["containers"][0]["image"] = image
    if node_name:
        found["spec"]["nodeName"] = node_name
        found["status"] = {"phase": "Running", "startTime": _time(seconds_ago)}
    return found


def _run(folder: Path, *objects: Manifest) -> Any:
    """The JSON answer."""
    path = folder / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    done = CliRunner().invoke(main, ["plan", "-f", str(path), "-o", "json"])
    assert done.exit_code == 0, done.stderr
    return by_pod(done.stdout)


#: n0 has large requests and is idle, n1 has small requests and is busy.
_CLUSTER = (
    *(node("n0"), node("n1"), _pod("idle", "2", "n0"), _pod("busy", "100m", "n1")),
    _metrics("NodeMetrics", "n0", "100m"),
    _metrics("NodeMetrics", "n1", "3500m"),
)


@pytest.mark.parametrize(("utilisation", "chosen"), [("Requested", "n1"), ("Measured", "n0"), ("Larger", "n0")])
def test_a_policy_chooses_what_counts(utilisation: str, chosen: str, tmp_path: Path) -> None:
    """However old the dump is: samples are compared with the newest one."""
    answer = _run(tmp_path, *_CLUSTER, _policy(utilisation), _pod("new", "500m"))
    assert answer["placements"] == {"default/new": chosen}
    assert answer["warnings"] == []


def test_pods_are_foreseen_by_others_of_their_images(tmp_path: Path) -> None:
    """Five pods of another version use 1.5 cpus each: two more fill an idle node as far as the busy one."""
    running = [_pod(f"old-{at}", "100m", "n1", image="registry/web:1") for at in range(5)]
    samples = [_metrics("PodMetrics", f"old-{at}", "1500m") for at in range(5)]
    nodes = [node("n0"), node("n1"), _metrics("NodeMetrics", "n0", "0"), _metrics("NodeMetrics", "n1", "1500m")]
    waiting = [_pod(f"new-{at}", "100m", image="registry/web:2@sha256:12") for at in range(3)]
    answer = _run(tmp_path, *nodes, *running, *samples, *waiting, _policy("Measured"))
    assert Counter(answer["placements"].values()) == {"n0": 2, "n1": 1}
    answer = _run(tmp_path, *nodes, *running, *waiting, _policy("Measured"))
    assert Counter(answer["placements"].values()) == {"n0": 3}


def test_pods_that_no_sample_contains_count(tmp_path: Path) -> None:
    """Pods that came to the idle node a moment ago are no reason to send more there."""
    came = [_pod(f"came-{at}", "900m", "n0", seconds_ago=5) for at in range(4)]
    nodes = [node("n0"), node("n1"), _metrics("NodeMetrics", "n0", "0"), _metrics("NodeMetrics", "n1", "1500m")]
    answer = _run(tmp_path, *nodes, *came, _pod("new", "100m"), _policy("Measured"))
    assert answer["placements"] == {"default/new": "n1"}


def test_bad_samples_are_left_out_one_by_one(tmp_path: Path) -> None:
    """Each with a sentence; the others count, and nodes without one have their requests."""
    bad = [
        _metrics("NodeMetrics", "n1", "-5"),
        _metrics("NodeMetrics", "gone", "1"),
        _metrics("PodMetrics", "busy", "NaN"),
        _metrics("NodeMetrics", "n2", "1", seconds_ago=-7 * 86400),
    ]
    good = [node("n0"), node("n1"), node("n2"), _metrics("NodeMetrics", "n0", "100m")]
    answer = _run(tmp_path, *good, *bad, _pod("idle", "2", "n0"), _pod("new", "500m"), _policy("Measured"))
    first, second, third, *others = answer["warnings"]
    assert first == 'NodeMetrics n1: usage.cpu: "-5" is negative. This sample does not count'
    assert second.startswith('PodMetrics default/busy: containers[0].usage.cpu: "NaN" is not a quantity')
    assert third.startswith("NodeMetrics n2: timestamp: it lies ")
    assert others == [
        "NodeMetrics gone: there is no such node",
        ("2 of 3 nodes, such as n1, have no sample of the last 180 seconds before the newest; their requests count"),
    ]


def test_a_policy_without_any_metrics_is_told(tmp_path: Path) -> None:
    """Requests count, and the warning has the command that adds what is missing."""
    answer = _run(tmp_path, node("n0"), _pod("new", "500m"), _policy("Larger"))
    assert answer["placements"] == {"default/new": "n0"}
    (warning,) = answer["warnings"]
    assert warning.endswith(f"so requests count. Add what was measured: {METRICS_COMMAND}")


def test_verdicts_read_the_same_files() -> None:
    """Metrics change nothing of what nodes a pod may use, and are no mistake."""
    (entry,) = why_nodes(*_CLUSTER, _policy("Measured"), _pod("new", "500m"))
    assert entry["pod"] == "default/new"
