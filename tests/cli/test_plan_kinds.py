"""``plan`` plans with kinds of workload, and what they cost beside each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.cli import Manifest, by_pod, node, pod
from thalweg.main import main


def _policy(penalties: list[Manifest]) -> Manifest:
    kinds = [{"name": name, "pods": {"matchLabels": {"kind": name}}} for name in ("web", "noisy")]
    return {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowSchedulingPolicy",
        "metadata": {"name": "quiet"},
        "spec": {
            "selects": {"schedulerNames": ["thalweg"]},
            "cost": {"kinds": kinds, "interference": {"default": 0, "penalties": penalties}},
        },
    }


def _pod(name: str, kind: str, cpu: str, node_name: str = "") -> Manifest:
    """Pending, or running."""
    found: dict[str, Any] = pod(name, cpu, schedulerName="thalweg")
    found["metadata"] |= {"labels": {"kind": kind}}
    if node_name:
        found["spec"]["nodeName"] = node_name
        found["status"] = {"phase": "Running", "startTime": "2026-01-05T10:00:00Z"}
    return found


@pytest.mark.parametrize(
    ("penalties", "expected"), [([], "loud"), ([{"kind": "web", "beside": "noisy", "penalty": 500}], "quiet")]
)
def test_a_pod_keeps_away_from_what_hurts_it(tmp_path: Path, penalties: list[Manifest], expected: str) -> None:
    """By a penalty that the policy states; else it takes the emptier node. "loud" has a noisy pod and more room."""
    there = [node("loud"), node("quiet"), _pod("here", "noisy", "100m", "loud"), _pod("there", "web", "500m", "quiet")]
    path = tmp_path / "dump.json"
    items = [_policy(penalties), *there, _pod("new", "web", "200m")]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    done = CliRunner().invoke(main, ["plan", "-f", str(path), "-o", "json"])
    assert done.exit_code == 0, done.stderr
    assert by_pod(done.stdout)["placements"]["default/new"] == expected
