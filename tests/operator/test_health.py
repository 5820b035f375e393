"""Readiness tells staleness, liveness tells progress."""

from pathlib import Path

import pytest
from thalweg_operator.errors import WorkerLost
from thalweg_operator.health import STALE, Liveness, kind_problems
from thalweg_operator.planning.worker.client import WorkerClient


def test_a_kind_is_lacking_until_it_was_complete_once_and_while_it_is_stale() -> None:
    """It falls when nothing is heard for longer than the bound, and returns when something is."""
    heard: dict[str, tuple[bool, float | None]] = {
        "nodes": (True, 1000.0), "pods": (False, None), "podgroups.x": (True, 1000.0)
    }  # fmt: skip

    def found(now: float) -> dict[str, str]:
        return {kind: problem for kind, problem in kind_problems(heard, now, ["podgroups.x"]).items() if problem}

    assert found(1000.0 + STALE) == {"pods": "not in sync yet"}
    heard["pods"] = (True, 1050.0)
    assert found(1000.0 + STALE) == {}
    assert found(1000.0 + STALE + 1) == {"nodes": "nothing heard for 91 s"}
    heard["nodes"] = (True, 1091.0)
    assert found(1000.0 + STALE + 1) == {}


def test_a_loop_that_waits_for_work_is_well() -> None:
    """For however long."""
    now = 0.0
    progress = Liveness(60.0, lambda: now)
    now = 1e6
    assert progress.problem() == ""
    progress.round_began()
    progress.round_ended(success=True)
    now = 2e6
    assert progress.problem() == ""


def test_a_turn_that_does_not_end_is_no_progress() -> None:
    """A round is bounded; five times the bound is not a slow round any more."""
    now = 0.0
    progress = Liveness(60.0, lambda: now)
    progress.round_began()
    now = 300.0
    assert progress.problem() == ""
    now = 301.0
    assert progress.problem() == "one round takes 301 s"
    progress.round_ended(success=True)
    assert progress.problem() == ""


def test_rounds_of_which_none_succeeds_are_no_progress() -> None:
    """A worker that cannot be started; but a question halved again and again until it can be answered is progress."""
    now = 0.0
    progress = Liveness(60.0, lambda: now)
    for _ in range(17):  # 100,000 pods halved down to one, each time until the time-out
        progress.round_began()
        now += 60.0
        progress.round_ended(success=False)
        now += 10.0
        assert progress.problem() == ""
    while now <= 1200.0:
        progress.round_began()
        progress.round_ended(success=False)
        now += 10.0
    assert progress.problem() == "no round succeeded for 1210 s"
    progress.round_began()
    progress.round_ended(success=True)
    assert progress.problem() == ""


async def test_a_worker_that_cannot_be_started_is_a_lost_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again; the operator does not end."""
    monkeypatch.setattr("sys.executable", str(tmp_path / "none"))
    with pytest.raises(WorkerLost, match="cannot be started"):
        await WorkerClient(1.0).start()
