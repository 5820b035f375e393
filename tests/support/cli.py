"""The real command in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]


def thalweg(*arguments: str | Path, stdin: str | None = None, columns: int = 200) -> subprocess.CompletedProcess[str]:
    """``python -m thalweg`` with these arguments; never a traceback, whatever it is given."""
    done = subprocess.run(
        [sys.executable, "-m", "thalweg", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"},
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def simulate(*objects: Manifest, arguments: tuple[str, ...] = ()) -> dict[str, Any]:
    """The JSON answer for these objects, given as a List on standard input; with the reason of each node."""
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    done = thalweg("simulate", "-f", "-", "-o", "json", "--nodes", *arguments, stdin=dump)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def explain(*objects: Manifest, names: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """The JSON answer of ``thalweg explain``, like ``simulate``."""
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    done = thalweg("explain", *names, "-f", "-", "-o", "json", stdin=dump)
    assert done.returncode == 0, done.stderr
    answer: list[dict[str, Any]] = json.loads(done.stdout)
    return answer


def node(name: str, cpu: str = "4", **more: Any) -> Manifest:
    """A node with room; further words are fields of its spec."""
    allocatable = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": more,
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }


def pod(name: str, cpu: str = "1", *, status: Manifest | None = None, metadata: Manifest | None = None,
        **spec: Any) -> Manifest:  # fmt: skip
    """A pod of one container; further words are fields of its spec."""
    container = {"name": "main", "image": "example.invalid/main", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **(metadata or {})},
        "spec": {"containers": [container], **spec},
        "status": status or {"phase": "Pending"},
    }


def to_yaml(*objects: Manifest) -> str:
    """Several documents, as kubectl prints them."""
    return yaml.safe_dump_all(objects)
