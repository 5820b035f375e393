"""`thalweg audit --since`: what the audits of an operator said, by a dump of its state."""

import json
from pathlib import Path

import pytest
from support.cli import node, thalweg
from support.scenario_state import scenario_of
from thalweg.audit.closed_table import closed_table
from thalweg.questions.status import age

from flowcore.model.regret import ClosedRoom, ClosingReason, RegretFigure, RegretRecord
from flowcore.questions.scenario.reading.moment import parse_moment
from flowcore.questions.scenario.reading.saved import state_of

NOON = parse_moment("2026-11-01T12:00:00Z")


def record(hours_ago: int, least: int) -> RegretRecord:
    """An audit: so many pods wait though a plan runs them, and one placement closed the room for all."""
    closed = ClosedRoom(
        waiting="shop/w",
        pods=least,
        reason=ClosingReason.FRAGMENTATION,
        pod=f"shop/p{hours_ago}",
        scheduler="default-scheduler",
        node="n1",
        to="n2",
        placed=NOON - 3600 * hours_ago - 60,
    )
    figures = (
        RegretFigure("WaitingPods", "", 20, least, 2 * least),
        RegretFigure("StrandedRoom", "memory", 2**40, 0, 2**32),
    )
    return RegretRecord(NOON - 3600 * hours_ago, figures, 0, (closed,))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """What an operator saved that made three audits."""
    scenario = scenario_of([node("n1")])
    scenario.moment, scenario.regret = NOON, [record(30, 9), record(3, 2), record(1, 4)]
    path = tmp_path / "state.jsonl"
    path.write_bytes(b"".join(state_of(scenario)))
    return path


def test_audits_of_a_time(state: Path) -> None:
    """Of these alone: the newest figures, the lowest, the highest, and whose placements closed rooms."""
    done = thalweg("audit", "-f", state, "--since", "1d")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "2 audits from 2026-11-01T09:00:00Z to 2026-11-01T11:00:00Z"
    rows = [line.split() for line in lines]
    assert ["WaitingPods", "4", "2", "4", "8"] in rows
    assert ["StrandedRoom/memory", "0", "0", "0", "4Gi"] in rows
    assert ["default-scheduler", "shop", "Fragmentation", "6", "shop/p1", "on", "n1,", "1m", "ago"] in rows
    answer = json.loads(thalweg("audit", "-f", state, "--since", "7d", "-o", "json").stdout)
    assert answer["lines"][0]["atLeast"] == [9, 2, 4]


def test_no_audit_is_kept(state: Path) -> None:
    done = thalweg("audit", "-f", state, "--since", "10m")
    assert (done.returncode, done.stdout) == (
        0,
        "No audit of this time is kept. An operator audits with --audit-interval.\n",
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--since", "7"), '"7" is not a time span, such as 90m, 12h or 7d'),
        (("--since", "0d"), '"0d" is not a time span'),
        (("--since", "7d", "--apply", "EmptyNodes", "--dry-run"), "--since audits nothing"),
        (("--since", "7d", "--fail-above", "EmptyNodes=1"), "--since audits nothing"),
    ],
)
def test_what_cannot_be_asked(state: Path, arguments: tuple[str, ...], says: str) -> None:
    refused = thalweg("audit", "-f", state, *arguments)
    assert refused.returncode == 2
    assert says in refused.stderr


def test_the_latest_placement_is_shown() -> None:
    """Whichever audit told of it first: a pod may begin to wait for room that was closed long ago."""
    rooms = [room for hours in (30, 1, 3) for room in record(hours, 1).closed]
    assert closed_table(rooms, NOON) == [
        ("default-scheduler", "shop", "Fragmentation", "3", f"shop/p1 on n1, {age(3660)} ago")
    ]
