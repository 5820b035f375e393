"""Audits of the operator: in a process of their own, at an interval, and told as metrics."""

import asyncio
from collections.abc import Iterator
from itertools import chain, count, pairwise, repeat
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.cli import node, pod
from support.scenario_state import NOW, scenario_of
from thalweg_operator.metrics import Metrics
from thalweg_operator.observability.audits import auditor as auditor_module
from thalweg_operator.observability.audits.auditor import Auditor, audit_records
from thalweg_operator.observability.audits.regret_metrics import RegretMetrics

from flowcore.model.regret import ClosedRoom, ClosingReason, RegretFigure, RegretRecord
from flowcore.questions.audit.answer_audit import AuditQuery, answer_audit
from flowcore.questions.audit.regret_record import record_of
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.reading.moment import moment_text
from flowcore.questions.scenario.reading.saved import state_of

_OWNER = {"kind": "ReplicaSet", "name": "web", "uid": "uid-web", "controller": True}


def regret(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"thalweg_regret_{name}", labels)


def cluster(now: float, *, waits: bool) -> Scenario:
    """Two nodes are half full: by a pod of a minute ago, and by one that stays. Another may wait for a whole node."""
    stays: dict[str, Any] = {"nodeName": "b", "schedulerName": "volcano"}
    moves: dict[str, Any] = {"nodeName": "a", "schedulerName": "volcano"}
    scenario = scenario_of([
        node("a"),
        node("b"),
        pod("stays", "2", status={"phase": "Running", "startTime": moment_text(now - 9000)}, **stays),
        pod("moves", "2", status={"phase": "Running", "startTime": moment_text(now - 60)},
            metadata={"uid": "moves", "namespace": "shop", "ownerReferences": [_OWNER]}, **moves),
        *([pod("whole", "4", metadata={"uid": "whole"})] if waits else []),
    ])  # fmt: skip
    scenario.moment = now
    return scenario


def auditor_of(metrics: Metrics, lines: Any = lambda _now: iter(()), **more: Any) -> Auditor:
    options = {
        "interval": 3600.0,
        "planning": lambda: False,
        "waits": lambda _key: True,
        "memory": 0,
        "wall_clock": lambda: NOW,
        **more,
    }
    return Auditor(lines, metrics=metrics, **options)


async def test_an_audit_names_who_closed_the_room() -> None:
    """In a process of its own, which gets the state and nothing else."""
    metrics, records = Metrics(), audit_records()
    await auditor_of(metrics, lambda now: state_of(cluster(now, waits=True)), records=records).audit()
    assert (regret(metrics, "pods", at="least"), regret(metrics, "pods", at="most")) == (1, 1)
    assert regret(metrics, "audits_total", outcome="done") == 1
    (record,) = records
    (room,) = record.closed
    assert record.time == NOW
    assert (room.pod, room.node, room.to, room.waiting) == ("shop/moves", "a", "b", "default/whole")


async def test_a_pod_that_waits_is_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However old the placement is, and though an audit finds no plan for it: again only when the pod waits anew.

    Counters begin after the first audit.
    """
    # Whether the audit names the pod, and whether it waits then.
    turns = ((True, True), (True, True), (False, True), (True, True), (False, False), (True, True))
    metrics, records, turn = Metrics(), audit_records(), iter(turns)
    waits = True
    auditor = auditor_of(metrics, records=records, waits=lambda _key: waits)

    async def record() -> RegretRecord:
        nonlocal waits
        named, waits = next(turn)
        return record_of(answer_audit(cluster(NOW, waits=named), AuditQuery(), AnswerContext(NOW)), NOW)

    async def closed() -> float | None:
        await auditor.audit()
        labels = {"scheduler": "volcano", "pod_namespace": "shop", "reason": "Fragmentation"}
        return regret(metrics, "closed_pods_total", **labels)

    monkeypatch.setattr(auditor, "_record", record)
    assert [await closed() for _ in turns] == [None, None, None, None, None, 1]
    assert [len(record.closed) for record in records] == [1, 0, 0, 0, 0, 1]


async def test_an_audit_that_takes_too_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel ends its process."""
    monkeypatch.setattr(auditor_module, "_MOST_CPU", 1)
    header, namespace, *_ = state_of(scenario_of([{"kind": "Namespace", "metadata": {"name": "a"}}]))
    with capture_logs() as logs:
        await auditor_of(Metrics(), lambda _now: chain([header], repeat(namespace)), records=audit_records()).audit()
    assert logs[0]["problem"] == "it took more than 1 CPU seconds"


def test_pods_of_others_count_beside_an_operator_that_acts() -> None:
    """It plans no pods that no policy governs; its audits do."""
    scenario = cluster(NOW, waits=True)
    scenario.complete = True
    record = record_of(answer_audit(scenario, AuditQuery(), AnswerContext(NOW)), NOW)
    assert [room.pod for room in record.closed] == ["shop/moves"]
    assert scenario.policies == {}


def broken(_now: float) -> Iterator[bytes]:
    yield b"no state\n"


async def test_an_audit_that_fails_harms_nothing() -> None:
    """It is told and counted; what the last one said stays."""
    metrics, records = Metrics(), audit_records()
    records.append(RegretRecord(NOW, (), 0, ()))
    with capture_logs() as logs:
        await auditor_of(metrics, broken, records=records).audit()
    assert [(line["event"], line["log_level"]) for line in logs] == [("not audited", "warning")]
    assert "ended" in logs[0]["problem"]
    assert regret(metrics, "audits_total", outcome="failed") == 1
    assert len(records) == 1


async def test_audits_wait_for_rounds_and_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """None begins while a round is under way; between two lies the interval."""
    busy, began = [True], list[float]()
    loop = asyncio.get_running_loop()
    auditor = auditor_of(Metrics(), records=audit_records(), interval=0.05, planning=lambda: busy[0])

    async def audit() -> None:
        assert not busy[0]
        began.append(loop.time())

    monkeypatch.setattr(auditor, "audit", audit)
    task = asyncio.create_task(auditor.run())
    await asyncio.sleep(0.3)
    assert began == []
    busy[0] = False
    async with asyncio.timeout(30):
        while len(began) < 3:  # noqa: ASYNC110 - the auditor tells nobody
            await asyncio.sleep(0.01)
    task.cancel()
    assert all(later - earlier >= 0.05 for earlier, later in pairwise(began))


def room(scheduler: str, pods: int = 1) -> ClosedRoom:
    return ClosedRoom(
        waiting="a/w", pods=pods, reason=ClosingReason.FRAGMENTATION, pod="a/p", scheduler=scheduler, placed=NOW
    )


def test_names_that_users_invent_share_a_series() -> None:
    """However many schedulers pods name; all of their pods are counted."""
    metrics, names = Metrics(), count()
    told = RegretMetrics(metrics)
    told.audited(RegretRecord(NOW, (), 0, tuple(room("first") for _ in range(5))), first=True)
    for _ in range(5):
        told.audited(RegretRecord(NOW, (), 0, tuple(room(f"s{next(names)}", pods=2) for _ in range(300))), first=False)
    (family,) = (each for each in metrics.registry.collect() if each.name == "thalweg_regret_closed_pods")
    totals = [sample for sample in family.samples if sample.name.endswith("_total")]
    assert len(totals) == 101
    assert sum(sample.value for sample in totals) == 5 * 300 * 2
    assert all(sample.labels["scheduler"] != "first" for sample in totals)


def test_gpus_of_all_kinds_are_one_figure() -> None:
    """And a finding that an audit has no more is nothing."""
    metrics = Metrics()
    told = RegretMetrics(metrics)
    assert regret(metrics, "gpus", at="least") is None
    figures = [RegretFigure("StrandedRoom", name, 9, 2, 3) for name in ("nvidia.com/gpu", "amd.com/gpu")]
    figures.append(RegretFigure("StrandedRoom", "memory", 9, 2**30, 2**31))
    told.audited(RegretRecord(NOW, tuple(figures), 4, ()), first=False)
    assert (regret(metrics, "gpus", at="least"), regret(metrics, "gpus", at="most")) == (4, 6)
    assert regret(metrics, "memory_bytes", at="least") == 2**30
    assert regret(metrics, "open_pods") == 4
    told.audited(RegretRecord(NOW, (), 0, ()), first=False)
    assert (regret(metrics, "gpus", at="least"), regret(metrics, "memory_bytes", at="most")) == (0, 0)
