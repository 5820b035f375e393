"""What is said of a round can fail without the plan: shares, bounds, reasons, prices, proposals."""

from __future__ import annotations

import msgspec
import pytest
from support.model import node, pod, snapshot
from support.recorded_rounds import request_of
from support.scenario_state import NOW, manifest_node, manifest_pod, scenario_of
from thalweg_operator.planning.worker.messages import RoundReply, RunningState
from thalweg_operator.planning.worker.planner import run_request
from thalweg_operator.planning.worker.replica import Replica

from flowcore.model.policies import BUILT_IN
from flowcore.model.queues import Queue
from flowcore.questions.scenario import plan_scenario
from flowcore.rules.reasons.codes import UNEXPLAINED

_ROUND = "flowcore.planning.round"
#: What fails, and the part that is missing then.
_PARTS = {
    "flowcore.costs.shares.shares.Shares.report": "The shares of queues",
    f"{_ROUND}.build_result.UnplacedReasons": "Why pods wait",
    f"{_ROUND}.unplaced_reasons.UnplacedReasons.of": "Why pods wait",
    f"{_ROUND}.round.with_causes_beside_room": "Why pods wait",
    f"{_ROUND}.round.left_at_least": "What every plan leaves",
    "flowcore.planning.problem.problem.Problem.bound_notes": "What the bound does not count",
    "flowcore.planning.evictions.eviction_plan._bounded": "The bound of the cost",
    "flowcore.planning.plan_document._proposals": "What policies propose",
    f"{_ROUND}.round.node_prices": "The prices of nodes",
    "thalweg_operator.planning.worker.planner.encode_prices": "The prices of nodes",
}


def _reply() -> RoundReply:
    """The worker's reply about two pods, of which one fits, and a queue."""
    request = request_of(snapshot([node("n0", 1000)], [pod("a", 600), pod("b", 600)]))
    request = msgspec.structs.replace(
        request, policies=[BUILT_IN], queues=[Queue("team")], running_state=RunningState()
    )
    return run_request(Replica(), request)


@pytest.mark.unsaid
@pytest.mark.parametrize("name", _PARTS)
def test_a_part_that_cannot_be_said_costs_no_plan(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same pod gets the same node; the reply names the part and the error."""
    whole = _reply()
    assert (len(whole.placements), len(whole.unplaced), whole.warnings) == (1, 1, [])

    def fails(*_arguments: object, **_named: object) -> None:
        raise ValueError("cannot reshape")

    monkeypatch.setattr(name, fails)
    reply = _reply()
    assert [(each.pod, each.node) for each in reply.placements] == [(each.pod, each.node) for each in whole.placements]
    assert [pod for pod, _ in reply.unplaced] == [pod for pod, _ in whole.unplaced]
    assert any(each.startswith(f"{_PARTS[name]} could not be computed: ValueError") for each in reply.warnings)
    if "UnplacedReasons" in name:
        assert reply.codes == [UNEXPLAINED]


@pytest.mark.unsaid
def test_an_answer_about_a_dump_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of a dump has the sentence among its warnings."""

    def fails(*_arguments: object) -> None:
        raise ValueError("cannot reshape")

    monkeypatch.setattr(f"{_ROUND}.round.left_at_least", fails)
    scenario = scenario_of([manifest_node("n0", "z", cpu="1"), manifest_pod("a"), manifest_pod("b")])
    document = plan_scenario(scenario, NOW).document()
    assert len(document.placements) == 1
    assert [each for each in document.warnings if each.startswith("What every plan leaves could not be computed")]
