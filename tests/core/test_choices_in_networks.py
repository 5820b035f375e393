"""Gangs that choose a domain in a declared network: where a round has no time for all of them, the others wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from support.model import node, pod, snapshot
from support.safety import check_capacity, check_complete, check_costs, check_gangs

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs import MODELS
from flowcore.costs.network_model import Arc, Network, NetworkCostModel, NetworkView
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.gangs import Gang
from flowcore.model.pod_index import PodSignature
from flowcore.model.policies import Policy
from flowcore.planning.declared_networks import Graph, NetworkSolution, NoFlowInTime, network_pass, solve_network
from flowcore.planning.round import RoundResult, run_round


class Everywhere(NetworkCostModel):
    """Any node that has room; but for pods with a name that says "never"."""

    name = "Everywhere"

    def network(self, view: NetworkView) -> Network:
        arcs = [Arc(waiting, "all") for waiting in view.pods if "never" not in waiting.name]
        return Network.of([*arcs, *(Arc("all", machine, 1) for machine in view.nodes)])


@contextmanager
def time_for(choices: int) -> Iterator[list[int]]:
    """Networks are solved where gangs choose so few domains, and no flow is found in time otherwise; what was asked."""
    asked: list[int] = []

    def solved(graph: Graph, *args: Any, **options: Any) -> NetworkSolution:
        asked.append(sum(len(group.domains) for group in graph.groups))
        if asked[-1] > choices:
            raise NoFlowInTime
        return solve_network(graph, *args, **options)

    with patch.object(network_pass, "solve_network", solved):
        yield asked


def members(gang: str, cpu: int = 1000, namespace: str = "default", **fields: Any) -> list[PendingPod]:
    """Two pods of a gang."""
    alone = [pod(f"{gang}-{at}", cpu, policy="net", kind=PodSignature(namespace), **fields) for at in range(2)]
    return [
        msgspec.structs.replace(each, key=f"{namespace}/{each.uid}", gangs=(gang,) if gang else ()) for each in alone
    ]


def with_gangs(racks: int, waiting: Iterable[PendingPod], *gangs: Gang) -> Snapshot:
    """A cluster of racks with a node of two cores each."""
    nodes = [node(f"n{rack}", 2000, labels=(("rack", f"r{rack}"),)) for rack in range(racks)]
    return replace(snapshot(nodes, list(waiting)), gangs={gang.name: gang for gang in gangs})


def in_racks(*names: str) -> list[Gang]:
    """Gangs of two pods in one rack."""
    return [Gang(name, 2, topology_key="rack") for name in names]


def planned(state: Snapshot) -> RoundResult:
    """The plan of a round, checked."""
    policies = {"net": Policy("net", cost=CostPolicy("Everywhere"))}
    result = run_round(state, policies, {**MODELS, "Everywhere": Everywhere()})
    for check in (check_complete, check_capacity, check_gangs):
        check(state, result)
    check_costs(result)
    assert result.lower_bound <= result.cost
    assert not result.contradictions
    return result


def by_gang(result: RoundResult) -> Counter[str]:
    """How many pods of each gang are placed; "" for others."""
    return Counter(next(iter(each.pod.gangs), "") for each in result.placements)


def test_the_dearest_gangs_have_their_turn_first() -> None:
    """Single pods are placed, and each gang beyond is told why it waits."""
    names = [f"g{number:02}" for number in range(12)]
    waiting = [each for number, name in enumerate(names) for each in members(name, priority=number)]
    state = with_gangs(14, [*waiting, *members("")], *in_racks(*names))
    with time_for(3) as asked:
        result = planned(state)
    assert asked == [12, 3]
    assert by_gang(result) == {"g09": 2, "g10": 2, "g11": 2, "": 2}
    told = (
        "G00 waits: the network of cost model Everywhere found no plan in time for the 12 domains "
        "that gangs and slices choose, and decides 3 of them in this round."
    )
    assert told in {each.reason for each in result.unplaced}
    assert {each.code for each in result.unplaced} == {"NetworkRefused"}
    assert result.lower_bound == 0


def test_the_others_get_their_turn_in_later_rounds() -> None:
    """Those that were placed wait no more."""
    left = {f"g{number:02}": members(f"g{number:02}") for number in range(12)}
    rounds = 0
    with time_for(3):
        while left:
            state = with_gangs(12, (each for pods in left.values() for each in pods), *in_racks(*left))
            placed = by_gang(planned(state))
            left = {name: pods for name, pods in left.items() if name not in placed}
            rounds += 1
            assert rounds <= 12
    assert rounds > 1


def test_gangs_that_have_no_room_take_no_turn_of_others() -> None:
    """However dear they are, and even if they are begun."""
    large = [each for number in range(8) for each in members(f"large{number}", 1500, priority=9)]
    of_large = [Gang(f"large{number}", 2, topology_key="rack", partially_placed=number > 3) for number in range(8)]
    state = with_gangs(4, [*large, *members("small")], *of_large, *in_racks("small"))
    with time_for(2):
        assert by_gang(planned(state)) == {"small": 2}


def test_gangs_that_the_network_never_places_do_not_take_all_turns() -> None:
    """They are the dearest, and have room. In the course of a minute the last one of all has its turn, too."""
    names = [f"never{number}" for number in range(8)]
    never = [each for name in names for each in members(name, priority=9)]
    state = with_gangs(9, [*never, *members("small")], *in_racks(*names, "small"))
    with time_for(2):
        rounds = [by_gang(planned(replace(state, now=now))) for now in (0.0, 55.0)]
    assert rounds == [{}, {"small": 2}]


@pytest.mark.parametrize("begun", [False, True])
def test_no_namespace_takes_all_turns(*, begun: bool) -> None:
    """One tenant brings eleven gangs, another one the twelfth."""
    names = [f"m{number}" for number in range(11)]
    crowd = [each for name in names for each in members(name, namespace="mallory", priority=9)]
    their_gangs = [Gang(name, 2, topology_key="rack", partially_placed=begun) for name in names]
    state = with_gangs(12, [*crowd, *members("q", namespace="quiet")], *their_gangs, *in_racks("q"))
    with time_for(3):
        assert by_gang(planned(state))["q"] == 2


def test_gangs_that_are_begun_have_their_turn_first() -> None:
    """What they have is no use without the rest."""
    names = [f"g{number}" for number in range(8)]
    dear = [each for name in names for each in members(name, priority=9)]
    begun = Gang("b", 2, topology_key="rack", partially_placed=True)
    with time_for(2):
        result = planned(with_gangs(9, [*dear, *members("b")], *in_racks(*names), begun))
    assert by_gang(result)["b"] == 2


def test_one_gang_with_many_slices_stops_nobody() -> None:
    """It waits as a whole. Another gang, and single pods, are placed."""
    slices = [Gang(f"s{number}", 2, slice_of="job", topology_key="rack") for number in range(8)]
    of_slices = [
        msgspec.structs.replace(each, gangs=("job", gang.name)) for gang in slices for each in members(gang.name)
    ]
    state = with_gangs(12, [*of_slices, *members("g"), *members("")], Gang("job", 16), *slices, *in_racks("g"))
    with time_for(2):
        result = planned(state)
    assert by_gang(result) == {"g": 2, "": 2}
    assert len({each.reason for each in result.unplaced}) == 1
    assert next(iter(result.unplaced)).reason.startswith(
        "Job waits: the network of cost model Everywhere found no plan in time for the 9 domains"
    )


def test_without_time_for_any_choice_others_are_placed() -> None:
    """The last network that is asked for has no gang that chooses."""
    names = [f"g{number}" for number in range(64)]
    waiting = [each for name in names for each in members(name)]
    with time_for(0) as asked:
        assert by_gang(planned(with_gangs(9, [*waiting, *members("")], *in_racks(*names)))) == {"": 2}
    assert asked == [64, 16, 4, 0]
