"""The time of a dump, from what its objects say."""

from typing import Any

import pytest

from flowcore.model.errors import ModelError
from flowcore.questions.scenario.reading.moment import NO_TIME, Times, moment_text, parse_moment


def _times(*objects: dict[str, Any]) -> Times:
    times = Times()
    for item in objects:
        times.read(item, f"{item['kind']} {item['metadata']['name']}")
    return times


def _pod(name: str, created: Any = None, **status: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": name, "creationTimestamp": created}, "status": status}


def _node(name: str, heartbeat: str) -> dict[str, Any]:
    conditions = [{"type": "Ready", "lastHeartbeatTime": heartbeat}]
    return {"kind": "Node", "metadata": {"name": name}, "status": {"conditions": conditions}}


@pytest.mark.parametrize(
    "item",
    [
        _pod("p", "2026-11-23T09:30:00Z"),
        _pod("p", startTime="2026-11-23T09:30:00Z"),
        _pod("p", conditions=[{"lastTransitionTime": "2026-11-23T10:30:00+01:00"}]),
        _pod("p", containerStatuses=[{"state": {"running": {"startedAt": "2026-11-23T09:30:00Z"}}}]),
        {"kind": "NodeMetrics", "metadata": {"name": "n"}, "timestamp": "2026-11-23T09:30:00Z"},
        {"kind": "Node", "metadata": {"name": "n", "managedFields": [{"time": "2026-11-23T09:30:00Z"}]}},
        {"kind": "Pod", "metadata": {"name": "p", "deletionTimestamp": "2026-11-23T09:30:30Z",
                                     "deletionGracePeriodSeconds": 30}},
    ],
)  # fmt: skip
def test_every_time_of_the_past_counts(item: dict[str, Any]) -> None:
    """A deletion is dated ahead by its grace period."""
    assert moment_text(_times(item, _pod("older", "2026-11-22T09:30:00Z")).moment()) == "2026-11-23T09:30:00Z"


def test_a_clock_that_runs_ahead_does_not_count() -> None:
    """Neither a pod of 2099 nor the kubelet of one node that is days ahead makes all others old."""
    nodes = [_node(name, "2026-11-23T09:30:00Z") for name in "abc"]
    for liar in (_pod("liar", "2099-01-01T00:00:00Z"), _node("liar", "2026-11-26T00:00:00Z")):
        times = _times(*nodes, _pod("p", "2026-11-23T09:31:00Z"), liar)
        assert moment_text(times.moment()) == "2026-11-23T09:31:00Z"
        assert times.too_late() == [f"{liar['kind']} liar"]
    pods = [_pod("p", "2026-01-01T00:00:00Z"), _pod("q", "2026-11-01T00:00:00Z"), _pod("r", "2099-01-01T00:00:00Z")]
    without_nodes = _times(*pods)
    assert moment_text(without_nodes.moment()) == "2026-11-01T00:00:00Z"


def test_nodes_that_are_down_do_not_hold_the_clock_back() -> None:
    """Fewer than half of them stopped to report days ago."""
    times = _times(
        _node("down", "2026-11-01T00:00:00Z"), _node("a", "2026-11-23T09:30:00Z"), _pod("p", "2026-11-23T09:31:00Z")
    )
    assert moment_text(times.moment()) == "2026-11-23T09:31:00Z"


def test_a_dump_without_any_time_has_a_fixed_moment() -> None:
    """And fields of a wrong type are no times."""
    assert (
        _times(_pod("p"), _pod("q", 7, conditions="none", containerStatuses=[{"state": {"x": 1}}])).moment() == NO_TIME
    )
    assert Times().moment() == NO_TIME
    assert moment_text(NO_TIME) == "2026-01-01T00:00:00Z"
    assert moment_text(0.0) == ""


def test_a_saved_state_says_when_it_was_written() -> None:
    """Whatever objects lie beside it."""
    times = _times(_pod("p", "2026-11-23T09:30:00Z"))
    times.written.append(1000.0)
    assert (times.moment(), times.too_late()) == (1000.0, [])


def test_a_moment_is_written_as_it_is_read() -> None:
    """RFC 3339 with a date and a time."""
    for text in ("2026-11-23T09:30:00Z", "2026-11-23T09:30:00.500000Z"):
        assert moment_text(parse_moment(text)) == text
    assert parse_moment("2026-11-23T10:30:00+01:00") == parse_moment("2026-11-23T09:30:00Z")
    for text in ("yesterday", "2026-11-23", "", "5"):
        with pytest.raises(ModelError, match="is not a time such as 2026"):
            parse_moment(text)
