"""One dump, one answer: whenever it is asked, and whichever command asks."""

import json
from pathlib import Path
from typing import Any

import pytest
import time_machine
from click.testing import CliRunner
from support.cli import Manifest, node, pod
from thalweg.dumps.reader import read_dump
from thalweg.main import main
from thalweg.view.view import dump_source

from flowcore.questions.scenario.reading.moment import NO_TIME, Times, moment_text

MADE = "2026-11-23T09:30:00Z"
#: Each question, and where its answer has the plan's cost.
COMMANDS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "plan": (["plan"], ("cost",)),
    "what-if": (["what-if", "--cordon", "b"], ("before", "cost")),
    "headroom": (["headroom", "--cpu", "1"], ("cost",)),
    "why": (["why", "default/large"], ()),
    "why --nodes": (["why", "default/large", "--nodes"], ()),
    "status": (["status"], ()),
}


@pytest.fixture
def dump(tmp_path: Path) -> str:
    """Pods that came over some hours: what waiting costs grows with their age."""
    pods = [
        pod("large", "9", metadata={"creationTimestamp": "2026-11-22T20:00:00Z"}),
        *(pod(f"web-{at}", "1", metadata={"creationTimestamp": f"2026-11-23T0{at}:00:00Z"}) for at in range(9)),
        pod("new", "1", metadata={"creationTimestamp": MADE}),
    ]
    file = tmp_path / "now.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("a"), node("b", "1"), *pods]}))
    return str(file)


def _ask(at: str, dump: str, *words: str) -> Any:
    with time_machine.travel(at):
        done = CliRunner().invoke(main, [*words, "-f", dump, "-o", "json"])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    if isinstance(answer, dict):
        answer.pop("seconds", None)
    return answer


@pytest.mark.parametrize("command", COMMANDS)
def test_a_dump_has_its_own_time(command: str, dump: str) -> None:
    """The same bytes today and in a year."""
    words, _ = COMMANDS[command]
    first, later = (_ask(at, dump, *words) for at in ("2026-11-23T10:00:00Z", "2027-11-23T10:00:00Z"))
    assert first == later
    assert first["now"] == MADE


def test_all_commands_plan_alike(dump: str) -> None:
    """plan, what-if's first plan, headroom and the view have one plan and one cost."""
    costs = {}
    for command, (words, path) in COMMANDS.items():
        answer = _ask("2026-12-01T00:00:00Z", dump, *words)
        for name in path:
            answer = answer[name]
        if path:
            costs[command] = answer
    placements = {each["pod"]: each["node"] for each in _ask("2026-12-02T00:00:00Z", dump, "plan")["placed"]}
    rounds: list[Any] = []
    dump_source(read_dump((dump,)), dump).on_round(rounds.append)
    (shown,) = rounds
    costs["view"] = shown.cost
    assert set(costs.values()) == {costs["plan"]}
    assert shown.time == read_dump((dump,)).moment
    assert shown.nodes_by_pod() == placements


def test_now_says_when_the_dump_was_made(dump: str) -> None:
    """Every command takes it for a dump, and none for a live cluster."""
    later = ("--now", "2026-11-30T09:30:00Z")
    for words, path in COMMANDS.values():
        own, given = (_ask(MADE, dump, *words, *more) for more in ((), later))
        if isinstance(own, dict):
            assert given["now"] == "2026-11-30T09:30:00Z"
        if len(path) == 1:
            assert given[path[0]] > own[path[0]]  # a week more of waiting
    refused = CliRunner().invoke(main, ["plan", "-f", dump, "--now", "yesterday"])
    assert (refused.exit_code, '"yesterday" is not a time such as' in refused.stderr) == (2, True)
    live = CliRunner().invoke(main, ["plan", "--now", MADE])
    assert (live.exit_code, "--now is for a dump" in live.stderr) == (2, True)


def test_a_pod_of_the_future_is_told(dump: str) -> None:
    """It does not count, and the command says so and how to say better."""
    objects = json.loads(Path(dump).read_text())
    objects["items"].append(pod("liar", metadata={"creationTimestamp": "2099-01-01T00:00:00Z"}))
    Path(dump).write_text(json.dumps(objects))
    answer = _ask(MADE, dump, "plan")
    assert answer["now"] == MADE
    (warning,) = answer["warnings"]
    assert "Pod default/liar: a time long after those of most objects does not count" in warning
    assert "--now" in warning


@pytest.mark.parametrize(
    "metadata",
    [
        {"deletionGracePeriodSeconds": 10**400},
        {"deletionTimestamp": MADE, "deletionGracePeriodSeconds": 10**400},
        {"creationTimestamp": "0001-01-01T00:00:00+14:00"},
        {"creationTimestamp": "9999-12-31T23:59:59-14:00"},
    ],
)
def test_a_time_that_cannot_be_counted_is_none(dump: str, metadata: Manifest) -> None:
    """Numbers of JSON may be larger than any float, and a zone may bring a time beyond the years of calendars."""
    times = Times()
    times.read({"kind": "Pod", "metadata": metadata}, "Pod default/odd")
    assert times.moment() == NO_TIME
    assert moment_text(times.moment())
    refused = CliRunner().invoke(main, ["plan", "-f", dump, "--now", "0001-01-01T00:00:00+14:00"])
    assert (refused.exit_code, "is not a time such as" in refused.stderr) == (2, True)
