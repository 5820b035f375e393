"""The real command in a process of its own, forked from one that has imported what commands need.

A command that starts from nothing takes a second of CPU time for its imports, and hundreds are run.
``thalweg_from_nothing`` is for tests that ask what it imports, or that have installed something for it.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

Manifest = dict[str, Any]

#: What most commands import when they run.
_IMPORTED: Final = [
    "thalweg.main", "thalweg.plans.plan", "thalweg.questions.headroom", "thalweg.questions.network",
    "thalweg.questions.status_run", "thalweg.questions.what_if", "thalweg.questions.why", "thalweg_operator.app",
    "jsonschema",
]  # fmt: skip
_forked = multiprocessing.get_context("forkserver")
_forked.set_forkserver_preload(_IMPORTED)


def thalweg(*arguments: str | Path, stdin: str | None = None, columns: int = 200) -> subprocess.CompletedProcess[str]:
    """``python -m thalweg`` with these arguments; never a traceback, whatever it is given."""
    words = [str(each) for each in arguments]
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("stdin", "stdout", "stderr")]
        for path, text in zip(files, (stdin or "", "", ""), strict=True):
            path.write_text(text)
        environment = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"}
        process = _forked.Process(target=_run, args=(words, files, environment, Path.cwd()))
        process.start()
        process.join(120)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(words, 120)
        _, stdout, stderr = (path.read_text() for path in files)
    assert "Traceback" not in stderr, stderr
    return subprocess.CompletedProcess(words, process.exitcode, stdout, stderr)


def thalweg_from_nothing(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """``python -m thalweg`` as a user starts it."""
    command = [sys.executable, "-m", "thalweg", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)


def _run(words: list[str], files: list[Path], environment: Mapping[str, str], folder: Path) -> None:
    """Becomes the command, with these files as its streams."""
    gc.freeze()  # what is imported is shared with all other commands, as long as no garbage collector writes to it
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate(files):
        opened = os.open(path, os.O_WRONLY if number else os.O_RDONLY)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115
    sys.argv = ["thalweg", *words]
    runpy.run_module("thalweg", run_name="__main__", alter_sys=True)


def plan_of(*objects: Manifest, arguments: tuple[str, ...] = ()) -> dict[str, Any]:
    """The plan for these objects, given as a List on standard input; with the reason of each node. See ``by_pod``."""
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    done = thalweg("plan", "-f", "-", "-o", "json", "--nodes", *arguments, stdin=dump)
    assert done.returncode == 0, done.stderr
    return by_pod(done.stdout)


def by_pod(answer: str) -> dict[str, Any]:
    """The JSON of ``thalweg plan``, with ``placements``, ``pending``, ``evicted`` and ``proposed`` by pod."""
    found: dict[str, Any] = json.loads(answer)
    pending = {each["pod"]: {"reason": each["reason"]} for each in found["waiting"]}
    for key, nodes in found.get("nodesOf", {}).items():
        pending[key]["nodes"] = nodes
    evicted, proposed = (
        {
            each["pod"]: {
                "node": each["node"], "for": each["for"], "kind": each["kind"], "to": each["to"] or None
            }
            for each in found[name]
        }
        for name in ("evictions", "proposals")
    )  # fmt: skip
    placements = {each["pod"]: each["node"] for each in found["placed"]}
    by_pod = {"placements": placements, "pending": pending, "evicted": evicted, "proposed": proposed}
    return {**found, **by_pod, "bound": len(placements)}


def why_nodes(*objects: Manifest, names: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """The JSON answers of ``thalweg why --nodes`` for these pods; without names the verdicts of all waiting pods."""
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    done = thalweg("why", *names, "--nodes", "--no-fixes", "-f", "-", "-o", "json", stdin=dump)
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] | dict[str, Any] = json.loads(done.stdout)
    return [answers] if isinstance(answers, dict) else answers


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
