"""``plan`` plans with kinds of workload, and learns what neighbours cost from the finished pods of a dump."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.cli import Manifest, by_pod, node, pod
from thalweg.main import main

_BEGIN = "2026-01-05T10:00:00Z"


def _policy(**interference: Any) -> Manifest:
    kinds = [{"name": name, "pods": {"matchLabels": {"kind": name}}} for name in ("web", "noisy")]
    return {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowSchedulingPolicy",
        "metadata": {"name": "quiet"},
        "spec": {
            "selects": {"schedulerNames": ["thalweg"]},
            "cost": {"kinds": kinds, "interference": {"default": 0, **interference}},
        },
    }


def _pod(name: str, kind: str, cpu: str, node_name: str = "", minutes: int = 0) -> Manifest:
    """Of one Job; pending, or running since the beginning, or finished after so many minutes."""
    found: dict[str, Any] = pod(name, cpu, schedulerName="thalweg")
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": kind, "uid": kind, "controller": True}
    found["metadata"] |= {"labels": {"kind": kind}, "ownerReferences": [job], "uid": name}
    if node_name:
        found["spec"]["nodeName"] = node_name
        found["status"] = {"phase": "Succeeded" if minutes else "Running", "startTime": _BEGIN}
    if minutes:
        ended = {"startedAt": _BEGIN, "finishedAt": f"2026-01-05T{10 + minutes // 60}:{minutes % 60:02}:00Z"}
        found["status"]["containerStatuses"] = [{"name": "c", "state": {"terminated": ended}}]
    return found


def _node_of_the_new_pod(folder: Path, policy: Manifest) -> str:
    """Node "loud" has a noisy pod and more room than "quiet"; forty pods have finished, the slow ones beside noise."""
    finished = [
        each
        for at in range(40)
        for each in (
            node(f"n{at}", cpu="1"),
            _pod(f"other{at}", "noisy" if at % 2 else "calm", "1", f"n{at}"),
            _pod(f"done{at}", "web", "0", f"n{at}", minutes=90 if at % 2 else 60),
        )
    ]
    there = [node("loud"), node("quiet"), _pod("here", "noisy", "100m", "loud"), _pod("there", "web", "500m", "quiet")]
    path = folder / "dump.json"
    items = [policy, *there, *finished, _pod("new", "web", "200m")]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    done = CliRunner().invoke(main, ["plan", "-f", str(path), "-o", "json"])
    assert done.exit_code == 0, done.stderr
    placed: str = by_pod(done.stdout)["placements"]["default/new"]
    return placed


@pytest.mark.parametrize(
    ("penalties", "learn", "expected"),
    [
        ([], False, "loud"),
        ([{"kind": "web", "beside": "noisy", "penalty": 500}], False, "quiet"),
        ([], True, "quiet"),
    ],
)
def test_a_pod_keeps_away_from_what_hurts_it(
    tmp_path: Path, penalties: list[Manifest], *, learn: bool, expected: str
) -> None:
    """By a penalty that the policy states, or that the finished pods tell; else it takes the emptier node."""
    policy = _policy(penalties=penalties)
    policy["spec"]["cost"]["learn"] = learn
    assert _node_of_the_new_pod(tmp_path, policy) == expected
