"""Gangs whose pods have a choice of ways: whole or absent, in their domain, and told what keeps them out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from support.model import node, pod, snapshot
from support.network_policies import drawing, with_choice
from support.safety import check_capacity, check_complete, check_costs, check_filters, check_gangs

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.gangs import Gang
from flowcore.model.policies import Policy
from flowcore.planning.round import RoundResult, run_round

#: The first node is the cheapest.
TO_NODES = [{"to": f"n{at}", "cost": 1 + at} for at in range(4)]


def members(count: int, *gangs: str, cpu: int = 1000, policy: str = "net", **fields: object) -> list[PendingPod]:
    name = "-".join((policy, *gangs, str(cpu), *map(str, fields.values())))
    alone = [pod(f"{name}-{at}", cpu, policy=policy, **fields) for at in range(count)]
    return [msgspec.structs.replace(each, gangs=gangs) for each in alone]


def planned(state: Snapshot, network: Mapping[str, Any] | None = None) -> RoundResult:
    policies = {name: drawing(name, network or with_choice(TO_NODES)) for name in ("net", "second")}
    policies["other"] = Policy("other")
    result = run_round(state, policies)
    for check in (check_complete, check_capacity, check_filters, check_gangs):
        check(state, result)
    check_costs(result)
    assert result.lower_bound <= result.cost
    return result


def with_gangs(cpus: Sequence[int], waiting: Sequence[PendingPod], *gangs: Gang, zones: str = "") -> Snapshot:
    labels = [(("zone", zones[at]),) if zones else () for at in range(len(cpus))]
    nodes = [node(f"n{at}", cpu, labels=labels[at]) for at, cpu in enumerate(cpus)]
    return replace(snapshot(nodes, waiting), gangs={gang.name: gang for gang in gangs})


def by_gang(result: RoundResult) -> Counter[str]:
    return Counter(next(iter(each.pod.gangs), "") for each in result.placements)


def test_a_gang_is_placed_whole() -> None:
    """As a unit that is carried out together; the pods that it does without are marked."""
    state = with_gangs([4000], members(3, "g"), Gang("g", 2))
    result = planned(state)
    assert [(each.atomic_group, each.optional) for each in result.placements] == [
        ("g", False), ("g", False), ("g", True)
    ]  # fmt: skip
    assert result.certified


def test_a_gang_has_its_name_whichever_way_it_takes() -> None:
    """The cheaper way takes one pod, and the gang is of two."""
    ways = [{"to": "n0", "maximum": 1}, {"to": "n0", "cost": 5, "maximum": 4}]
    result = planned(with_gangs([4000], members(2, "g"), Gang("g", 2)), with_choice(ways))
    assert {each.atomic_group for each in result.placements} == {"g"}
    assert [each.price for each in result.placements] == [5, 5]


def test_a_gang_without_room_is_absent() -> None:
    """Others get the room, and the reason says what it lacks."""
    state = with_gangs([2000], [*members(3, "g"), *members(1)], Gang("g", 3))
    result = planned(state)
    assert by_gang(result) == {"": 1}
    told = "g needs 3 pods at once, and there is room for 1 beside what is placed."
    assert {(each.reason, each.code) for each in result.unplaced} == {(told, "GangWithoutRoom")}


def test_a_gang_is_whole_though_single_pods_are_dearer() -> None:
    """Two pods fit: both of the gang, or two others. Together its pods cost more to leave."""
    dear, cheap = {"priority": 1}, {"priority": 0}
    state = with_gangs([2000], [*members(2, "g", **dear), *members(2, **cheap)], Gang("g", 2))
    assert by_gang(planned(state)) == {"g": 2}
    state = with_gangs([2000], [*members(2, "g", **cheap), *members(2, **dear)], Gang("g", 2))
    assert by_gang(planned(state)) == {"": 2}


def test_a_maximum_of_the_network_counts_a_gang_as_a_whole() -> None:
    """Three do not pass an arc for two."""
    state = with_gangs([9000], [*members(3, "g"), *members(2)], Gang("g", 3))
    assert by_gang(planned(state, with_choice(TO_NODES, maximum=2))) == {"": 2}


def test_gangs_of_unequal_pods_take_those_that_fit() -> None:
    """Two of three are enough, and the large one fits nowhere."""
    state = with_gangs([2000], [*members(2, "g", cpu=1000), *members(1, "g", cpu=3000)], Gang("g", 2))
    assert by_gang(planned(state)) == {"g": 2}


@pytest.mark.parametrize(
    ("cpus", "expected"), [([1000, 1000, 2000], {"n2"}), ([1000, 1000, 1000], set()), ([3000, 1000, 1000], {"n0"})]
)
def test_a_gang_keeps_to_one_domain(cpus: Sequence[int], expected: set[str]) -> None:
    """One that has room for what it needs; without one it is absent."""
    state = with_gangs(cpus, members(2, "g"), Gang("g", 2, topology_key="zone"), zones="abc")
    assert {each.node for each in planned(state).placements} == expected


def test_a_gang_keeps_to_the_domain_where_it_is() -> None:
    """Also where it has all that it needs, and others would be cheaper."""
    for least in (0, 2):
        gang = Gang("g", least, topology_key="zone", domain="c")
        result = planned(with_gangs([4000, 4000, 2000], members(3, "g"), gang, zones="abc"))
        assert [each.node for each in result.placements] == ["n2", "n2"]


def test_gangs_of_one_group_are_placed_together() -> None:
    """Room for one of them is not enough."""
    gangs = Gang("g", 2, atomic_group="both"), Gang("h", 2, atomic_group="both")
    waiting = [*members(2, "g"), *members(2, "h", cpu=2000)]
    assert not planned(with_gangs([5000], waiting, *gangs)).placements
    result = planned(with_gangs([6000], waiting, *gangs))
    assert by_gang(result) == {"g": 2, "h": 2}
    assert {each.atomic_group for each in result.placements} == {"both"}


def test_a_pod_of_two_gangs_counts_for_both() -> None:
    """The plan has enough of each, and needs all of them."""
    waiting = [*members(1, "g"), *members(1, "g", "h"), *members(1, "h")]
    result = planned(with_gangs([3000], waiting, Gang("g", 2), Gang("h", 2)))
    assert len(result.placements) == 3
    assert not any(each.optional for each in result.placements)
    assert not planned(with_gangs([2000], waiting, Gang("g", 2), Gang("h", 2))).placements


@pytest.mark.parametrize(
    ("gangs", "told", "code"),
    [
        ((), "G is not known.", "GangIncomplete"),
        ((Gang("g", 3),), "G needs 3 pods at once, 2 wait.", "GangIncomplete"),
        ((Gang("g", 1, unschedulable_reason="g has no quota"),), "G has no quota.", "GangIncomplete"),
    ],
)
def test_a_gang_that_cannot_be_placed_says_why(gangs: Sequence[Gang], told: str, code: str) -> None:
    """The policy's other pods do not wait for it."""
    result = planned(with_gangs([4000], [*members(2, "g"), *members(1)], *gangs))
    assert by_gang(result) == {"": 1}
    assert {(each.reason, each.code) for each in result.unplaced} == {(told, code)}


@pytest.mark.parametrize("policy", ["other", "second"])
def test_a_gang_of_several_policies_is_whole_or_absent(policy: str) -> None:
    """Where some of its pods have a choice of ways, and others are of another network or of none."""
    waiting = [*members(1, "g"), *members(1, "g", policy=policy), *members(1)]
    assert by_gang(planned(with_gangs([4000], waiting, Gang("g", 2)))) == {"g": 2, "": 1}
    assert by_gang(planned(with_gangs([1000], waiting, Gang("g", 2)))) == {"": 1}


def test_a_dear_gang_keeps_no_room_from_other_networks_that_it_cannot_use() -> None:
    """Networks have their turn by price, each with its own gangs."""
    waiting = [*members(3, "g", priority=5), *members(2, policy="second")]
    assert by_gang(planned(with_gangs([2000], waiting, Gang("g", 3)))) == {"": 2}
    assert by_gang(planned(with_gangs([4000], waiting, Gang("g", 3)))) == {"g": 3, "": 1}


def test_waiting_for_nothing_is_no_plan() -> None:
    """A gang that costs more to place than to leave waits, as a whole."""
    result = planned(with_gangs([4000], members(2, "g"), Gang("g", 2)), with_choice(TO_NODES, cost=10**9))
    assert not result.placements
    assert result.certified


def test_pods_of_other_controllers_count_only_where_there_are_too_few_others() -> None:
    """Two nodes for four pods that say they are of the gang: its own two run, and the others wait."""
    waiting = members(4, "g")
    foreign = tuple(waiting[place].key for place in (0, 1))
    result = planned(with_gangs([1000, 1000], waiting, Gang("g", 2, foreign_pods=foreign)))
    assert {placement.pod.key for placement in result.placements} == {waiting[2].key, waiting[3].key}
    result = planned(with_gangs([3000], waiting, Gang("g", 3, foreign_pods=foreign)))
    assert {waiting[2].key, waiting[3].key} < {placement.pod.key for placement in result.placements}


def test_own_pods_that_fit_nowhere_are_replaced_by_those_of_others() -> None:
    """One of its own is too large for any node."""
    waiting = [*members(1, "g"), *members(1, "g", cpu=9000), *members(1, "g", cpu=500)]
    gang = Gang("g", 2, foreign_pods=(waiting[2].key,))
    result = planned(with_gangs([4000], waiting, gang))
    assert {placement.pod.key for placement in result.placements} == {waiting[0].key, waiting[2].key}


def test_a_gang_that_is_begun_comes_before_others() -> None:
    """What it has is no use without the rest; dearer pods get what it leaves, and the plan says what that may cost."""
    others = members(2, priority=9)
    for begun, expected in ((True, {"g": 2}), (False, {"": 2})):
        gang = Gang("g", 2, partially_placed=begun)
        result = planned(with_gangs([2000], [*members(2, "g"), *others], gang))
        assert by_gang(result) == expected


def test_a_begun_gang_without_room_keeps_nothing_from_others() -> None:
    """Three do not fit."""
    gang = Gang("g", 3, partially_placed=True)
    assert by_gang(planned(with_gangs([2000], [*members(3, "g"), *members(2)], gang))) == {"": 2}


def test_spare_pods_of_a_begun_gang_are_like_any_others() -> None:
    """It needs one, and two wait: the other one has its turn by its price."""
    gang = Gang("g", 1, partially_placed=True)
    result = planned(with_gangs([2000], [*members(2, "g"), *members(1, priority=9)], gang))
    assert by_gang(result) == {"g": 1, "": 1}


def test_a_pod_of_two_gangs_is_counted_once_in_what_they_need() -> None:
    """Three pods make both gangs of two."""
    waiting = [*members(1, "g"), *members(1, "g", "h"), *members(1, "h")]
    result = planned(with_gangs([2000], waiting, Gang("g", 2), Gang("h", 2)))
    told = {left.reason for left in result.unplaced}
    assert told == {"g needs 3 pods at once, and there is room for 2 beside what is placed."}
