"""Families of rounds by which methods of evictions are judged: small drawn ones, of tens of nodes, and large ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import msgspec
from running_pods import POLICIES, cpu_rounds, gang_round, urgent_round

from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.planning.round import RoundResult, run_round
from flowcore.questions.scenario import Scenario, plan_scenario
from harness.drawn_pods import NOW
from harness.full_clusters import FullShape, draw_full
from harness.move_rounds import draw_moves
from harness.urgent_rounds import UrgentShape, draw_urgent

#: Rounds of clusters of tens of nodes at most, and of gangs of whole nodes.
_FULL, _GANGS = 30, 5
_RESOURCES = UrgentShape((1000,), rules=False)
#: Clusters of tens of nodes, and whether policies move pods.
_FULL_SHAPES = {
    "urgent": (FullShape(), False),
    "urgent, short of room": (FullShape(asked=1.1), False),
    "urgent, budgets": (FullShape(budgets=True), False),
    "urgent, two priorities": (FullShape(priorities=(1000, 30)), False),
    "urgent gangs": (FullShape(gang=4), False),
    "moves": (FullShape((0,), (0,), asked=0.04, used=0.8), True),
    "moves, gangs": (FullShape((0,), (0,), asked=0.04, used=0.8, gang=4), True),
    "moves, urgent": (FullShape(used=0.8), True),
    "moves, urgent, budgets": (FullShape(used=0.8, budgets=True), True),
}

#: Plans a round that is drawn.
Plan = Callable[[], RoundResult]


@dataclass(frozen=True, slots=True)
class Family:
    """Rounds that are alike.

    Attributes:
        draw: draws the round of a seed, so that it can be planned several times.
        most: rounds, at most.
    """

    name: str
    draw: Callable[[int], Plan]
    most: int = 100_000


def families() -> Iterator[Family]:
    """All families."""
    yield Family("small: urgent", partial(_urgent, _RESOURCES))
    yield Family("small: urgent, rules", partial(_urgent, UrgentShape((1000,))))
    yield Family("small: urgent, two priorities", partial(_urgent, UrgentShape((1000, 30))))
    yield Family("small: urgent gang", partial(_urgent, _RESOURCES, gang=True))
    yield Family("small: moves", partial(_moves, urgent=False))
    yield Family("small: moves, urgent", partial(_moves, urgent=True))
    yield Family("small: moves, urgent, budgets", partial(_urgent, _RESOURCES, moves=True))
    yield Family("small: moves, urgent gang", partial(_urgent, _RESOURCES, moves=True, gang=True))
    for name, (shape, moves) in _FULL_SHAPES.items():
        yield Family(f"tens of nodes: {name}", partial(_full, shape, moves=moves), _FULL)
    yield Family("gangs of whole nodes, moves", _gang, _GANGS)
    yield Family("500 urgent, 1,000 nodes", _urgent_at_size, 1)
    yield Family("100 moves, 5,000 nodes", _moves_at_size, 1)


def _urgent(shape: UrgentShape, seed: int, *, moves: bool = False, gang: bool = False) -> Plan:
    scenario = draw_urgent(seed, shape).scenario
    return _planned(_as_gang(scenario) if gang else scenario, moves=moves)


def _as_gang(scenario: Scenario) -> Scenario:
    """The same where all that wait are a gang that needs all of them."""
    pods = scenario.waiting()
    gang = GangRef(GangKey(GangSource.THALWEG, "default", "all"), GangSpec(min_member=len(pods)))
    for pod in pods:
        scenario.cluster.put_pod(msgspec.structs.replace(pod, gang=gang))
    return scenario


def _moves(seed: int, *, urgent: bool) -> Plan:
    return _planned(draw_moves(seed, urgent=urgent).scenario(), moves=True)


def _full(shape: FullShape, seed: int, *, moves: bool) -> Plan:
    return _planned(draw_full(seed, shape), moves=moves)


def _planned(scenario: Scenario, *, moves: bool) -> Plan:
    return lambda: plan_scenario(scenario, NOW, reschedule=moves).result


def _gang(seed: int) -> Plan:
    snapshot = gang_round(30, seed)
    return lambda: run_round(snapshot, POLICIES)


def _urgent_at_size(_seed: int) -> Plan:
    snapshot = urgent_round(1_000)
    return lambda: run_round(snapshot)


def _moves_at_size(_seed: int) -> Plan:
    snapshot, policies = cpu_rounds(5_000)["100 do not fit, moves first"]
    return lambda: run_round(snapshot, policies)
