"""The page of audits: its columns are the audits, and callers see the placements of their namespaces alone."""

from collections import Counter

import msgspec
import pytest
from thalweg_view.pictures.regret import RegretAnswer, RegretQuery, answer_regret
from thalweg_view.rounds import RoundHistory
from thalweg_view.view_data import SourceInfo, ViewData

from flowcore.model.errors import ModelError
from flowcore.model.regret import ClosedRoom, ClosingReason, RegretFigure, RegretRecord
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.context import AnswerContext, sees_all

_FINDINGS = (("WaitingPods", ""), ("StrandedRoom", "nvidia.com/gpu"), ("EmptyNodes", ""))


def record(number: int) -> RegretRecord:
    """An audit; not each of them has all findings."""
    names = _FINDINGS[: 1 + number % 3]
    figures = tuple(RegretFigure(*name, 100 + number, number, 2 * number) for name in names)
    closed = tuple(
        ClosedRoom(
            waiting=f"{waiting}/w{number}",
            pods=number + 1,
            reason=ClosingReason.FRAGMENTATION,
            pod=f"{namespace}/p{number}",
            scheduler=f"scheduler-of-{namespace}",
            placed=float(number),
        )
        for namespace, waiting in (("mine", "mine"), ("mine", "hidden"), ("hidden", "mine"))
    )
    return RegretRecord(float(number), figures, number, closed)


def asked(audits: int, namespace: str = "", limit: int = 0) -> RegretAnswer:
    scenario = Scenario(regret=[record(number) for number in range(audits)])
    data = ViewData(scenario, RoundHistory(), SourceInfo("live", "", "1"), 7)
    sees = (lambda name: name == namespace) if namespace else sees_all
    return answer_regret(data, RegretQuery(limit=limit), AnswerContext(0.0, sees=sees))


def test_columns_are_the_audits() -> None:
    """Of each finding one column of each number; an audit without the finding has no number there."""
    answer = asked(6)
    assert answer.time == [0, 1, 2, 3, 4, 5]
    assert answer.open_pods == [0, 1, 2, 3, 4, 5]
    assert [(line.finding, line.resource) for line in answer.lines] == [*_FINDINGS]
    for place, line in enumerate(answer.lines):
        numbers = [number if number % 3 >= place else None for number in range(6)]
        assert line.at_least == numbers
        assert line.at_most == [None if number is None else 2 * number for number in numbers]
        assert line.now == [None if number is None else 100 + number for number in numbers]
    assert [row.placed for row in answer.closed] == sorted((row.placed for row in answer.closed), reverse=True)
    assert answer.hidden == 0


def test_a_caller_sees_its_own_namespaces() -> None:
    """Neither a pod, a scheduler nor a number of pods of others; but how many placements are not shown."""
    everything, own = asked(4), asked(4, "mine")
    assert own.hidden == 2 * 4
    pairs = {(f"mine/p{number}", f"mine/w{number}") for number in range(4)}
    assert {(row.pod, row.waiting) for row in own.closed} == pairs
    assert "hidden" not in repr(own).replace("hidden=8", "")
    for answer in (everything, own):
        pods = Counter[tuple[str, str]]()
        for row in answer.closed:
            pods[row.scheduler, row.pod.partition("/")[0]] += row.pods
        assert {(each.scheduler, each.namespace): each.pods for each in answer.by} == pods


def test_as_many_rooms_are_listed_as_are_asked_for() -> None:
    """Those of the latest audits; what is counted counts all."""
    everything, some = asked(4, "mine"), asked(4, "mine", limit=3)
    assert some == msgspec.structs.replace(everything, closed=everything.closed[:3])
    with pytest.raises(ModelError, match="limit -1: give numbers from 0 on"):
        asked(4, limit=-1)


def test_without_audits_there_is_nothing() -> None:
    """Of an operator that makes none, and of a dump."""
    assert asked(0) == RegretAnswer(7, [], [], [], [], [], 0)
