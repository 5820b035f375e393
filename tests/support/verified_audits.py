"""Audits of dumps, and what tools/verify_audit.py says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import verify_audit
from support.audited_clusters import as_list
from support.cli import Manifest, pod
from thalweg.dumps.reader import read_dump

from flowcore.questions.audit.answer_audit import AuditQuery, answer_audit
from flowcore.questions.scenario.context import AnswerContext

_OWNER = {"kind": "ReplicaSet", "name": "web", "uid": "uid-web", "controller": True}


def audit_of(path: Path, objects: list[Manifest], most_moves: int = 100) -> dict[str, Any]:
    """The audit of some objects, which are written to a file."""
    path.write_text(json.dumps(as_list(objects)))
    scenario = read_dump((str(path),))
    answer = answer_audit(scenario, AuditQuery(most_moves), AnswerContext(scenario.moment))
    audited: dict[str, Any] = json.loads(msgspec.json.encode(answer))
    return audited


def verified(folder: Path, audit: dict[str, Any], dump: Path) -> int:
    """The exit code of the verifier."""
    path = folder / "audit.json"
    path.write_text(json.dumps(audit))
    return verify_audit.main([str(path), str(dump)])


def finding(audit: dict[str, Any], kind: str) -> dict[str, Any]:
    """The first finding of a kind."""
    return next(each for each in audit["findings"] if each["kind"] == kind)


def running(name: str, on: str, cpu: str = "2", metadata: Manifest | None = None, **spec: Any) -> Manifest:
    """A pod of a controller, started at ten; further words are fields of its spec."""
    status = {"phase": "Running", "startTime": "2026-11-01T10:00:00Z"}
    labelled = {"uid": name, "ownerReferences": [_OWNER], **(metadata or {})}
    return pod(name, cpu, status=status, nodeName=on, metadata=labelled, **spec)
