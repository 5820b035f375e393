"""What the first step of a round with many pods has: a plan, a bound, and no method that belongs to a later step."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from support.model import node, pod, snapshot

from flowcore.costs import MODELS
from flowcore.model.cost_policy import PricedBy, UnscheduledPrice
from flowcore.model.gangs import Gang
from flowcore.model.pod_index import CONTROLLER, PodSignature
from flowcore.model.policies import BUILT_IN
from flowcore.model.volumes import ZONE
from flowcore.planning.methods import admission
from flowcore.planning.methods.admission import Admission
from flowcore.planning.methods.constructive import interleaved
from flowcore.planning.methods.relaxation import RelaxedSolution
from flowcore.planning.problem.bounds.bounds import first_bound
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round import Round, portfolio
from flowcore.planning.round.round import DEFAULT_POLICIES

BY_POD = {BUILT_IN.name: msgspec.structs.replace(BUILT_IN, unscheduled=UnscheduledPrice(per=PricedBy.POD))}


def test_a_round_in_fractions_that_fails_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the first step of a round that is short of room ends with fill; by turns belongs to the next."""
    tried: list[CostMatrix] = []
    monkeypatch.setattr(portfolio, "relax", tried.append)
    nodes = [node(f"n{at}", 8000) for at in range(10)]
    this = Round(snapshot(nodes, [pod(f"p{at}", 100 + 50 * (at % 5)) for at in range(3_100)]), BY_POD)
    assert this.step()
    assert this.improved_by == {"fill"}
    for _ in range(4):
        this.step()
    assert "by turns" in this.improved_by
    assert len(tried) == 1


def test_a_plan_at_its_bound_is_not_built_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred ReplicaSets and a node for each pod: nothing is to gain but what the bound is rounded by."""
    built: list[Problem] = []

    def by_turns(problem: Problem) -> Candidate:
        built.append(problem)
        return interleaved(problem)

    monkeypatch.setattr(portfolio, "interleaved", by_turns)
    nodes = [node(f"n{at}", labels=((ZONE, f"z{at % 4}"),)) for at in range(2_000)]
    kinds = [PodSignature("default", ((CONTROLLER, f"r{at}"),)) for at in range(200)]
    this = Round(snapshot(nodes, [pod(f"p{at}", 900 + at // 10 % 2, kind=kinds[at // 10]) for at in range(2_000)]))
    while this.step():
        pass
    assert not built
    assert len({each.node for each in this.result().placements}) == 2_000


def test_rough_prices_do_not_replace_what_pods_pay_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand pods in gangs: the round in fractions is rough, and here its prices are worth nothing."""
    members = [msgspec.structs.replace(pod(f"p{at}", 100 + at % 7), gangs=(f"g{at // 10}",)) for at in range(1_000)]
    crowd = replace(
        snapshot([node(f"n{at}", 8000) for at in range(20)], members),
        gangs={f"g{at}": Gang(f"g{at}", 10) for at in range(100)},
    )

    def bad(matrix: CostMatrix, *_args: object, **_fineness: int) -> RelaxedSolution:
        return RelaxedSolution(np.full(matrix.capacity.free.shape, 1e6), (), np.zeros(0), {})

    monkeypatch.setattr(admission, "relax", bad)
    problem = Problem(crowd, DEFAULT_POLICIES, MODELS)
    alone = first_bound(problem.unreserved_cost_matrix, problem.atomic_groups.all)
    first = Admission(problem)
    next(first.run())
    assert first.bound == alone > 0
