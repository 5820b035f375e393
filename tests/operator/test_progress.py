"""The log at info: sums, a line a second at most, and nothing where nothing happened."""

from typing import Any

from structlog.testing import capture_logs
from thalweg_operator.planning.reports.progress import ProgressLog
from thalweg_operator.planning.worker.messages import RoundReply, RoundRequest

from flowcore.model.pods import Pod, PodClass

POD = Pod("ns", "p", "u", PodClass())


def lines(progress: ProgressLog) -> list[dict[str, Any]]:
    """What one flush says at info."""
    with capture_logs() as logged:
        progress.flush()
    return [{key: value for key, value in line.items() if key != "log_level"} for line in logged]


def plan(progress: ProgressLog, placed: int, left: int) -> None:
    request: dict[str, Any] = {name: [] for name in RoundRequest.__struct_fields__}
    reply: dict[str, Any] = {name: [] for name in RoundReply.__struct_fields__}
    reply |= {"placements": [None] * placed, "unplaced": [None] * left, "cost": 100, "lower_bound": 98, "seconds": 0.25}
    progress.round_planned(RoundRequest(**request), [], RoundReply(**reply))


def test_sums_of_rounds_and_bindings() -> None:
    """Counts, cost and gap of the last round, seconds of all."""
    progress = ProgressLog()
    plan(progress, 3, 1)
    plan(progress, 2, 0)
    for _ in range(5):
        progress.bound(POD, "n")
    progress.refused(POD, "no")
    assert lines(progress) == [
        {"event": "rounds", "rounds": 2, "placed": 5, "unplaced": 0, "cost": 100, "gap": "2.0%", "seconds": 0.5},
        {"event": "bindings", "bound": 5, "refused": 1},
    ]
    assert lines(progress) == []


def test_idle_rounds_say_nothing() -> None:
    """A round that neither placed nor left a pod."""
    progress = ProgressLog()
    plan(progress, 0, 0)
    assert lines(progress) == []


def test_each_binding_is_logged_at_debug() -> None:
    """With pod and node."""
    with capture_logs() as logged:
        ProgressLog().bound(POD, "n")
    assert logged == [{"event": "bound", "pod": "ns/p", "node": "n", "log_level": "debug"}]
