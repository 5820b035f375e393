"""Priorities hold: no pod waits for room that a pod of a lower priority gets in the same round, and none that has room.

The dumps are rounds in which a plan broke one of these claims. The drawn rounds are small, so that every plan of them
can be compared, or have many pods of several priorities.
"""

from collections import Counter
from dataclasses import replace

import msgspec
import pytest
from harness.small_rounds import RULES, Shape, draw_round, most_placed
from hypothesis import given, settings
from hypothesis import strategies as st
from support.levels import (
    DUMPS,
    NOW,
    evicted_again,
    fewer_than_one_by_one,
    left_out,
    misplaced,
    plan_of,
    scenario_of,
    younger_before_older,
)
from support.model import node, pod, snapshot
from support.profiles import examples

from flowcore.model.cost_policy import PricedBy
from flowcore.model.gangs import Gang
from flowcore.planning.round import Round, run_one_by_one, run_round
from flowcore.questions.scenario import Scenario, ScenarioPlan, plan_scenario
from flowcore.questions.scenario.plan import prepare_scenario

ALL = sorted(path.stem for path in DUMPS.glob("*.json"))
#: One by one knows no gangs: it places the pods of some in part.
GANGS = [name for name in ALL if "gang" in name]
#: The aged pod runs in the next round, in which a pod of a higher priority may preempt it.
CROSSES = "repro-aging-crosses"
#: Here age decides and not numbers: one pod that has waited for days is dearer to leave than some new ones.
AGED = ("prio-waits-1-18",)


@pytest.mark.parametrize("name", ALL)
def test_nobody_waits_for_room_that_is_there_or_that_lower_pods_get(name: str) -> None:
    """By the filters, with the pods of lower priorities of the plan and without them."""
    planned = plan_of(name)
    assert left_out(planned) == []
    assert misplaced(planned) == []


@pytest.mark.parametrize("name", [name for name in ALL if name not in (*GANGS, *AGED, CROSSES)])
def test_one_by_one_places_no_more_pods_of_any_priority(name: str) -> None:
    """Not more than the plan, unless the plan places more of a higher one."""
    assert fewer_than_one_by_one(plan_of(name)) == {}


@pytest.mark.parametrize("name", ALL)
def test_of_equal_pods_the_older_one_is_placed(name: str) -> None:
    """Those that wait are the youngest of their kind."""
    assert younger_before_older(plan_of(name)) == []


@pytest.mark.parametrize("name", [name for name in ALL if name != CROSSES])
def test_what_is_placed_is_not_evicted_in_the_next_round(name: str) -> None:
    """The plan is carried out and a minute passes."""
    scenario = scenario_of(name)
    assert evicted_again(scenario, plan_scenario(scenario, NOW)) == []


@pytest.mark.parametrize(
    ("name", "placed"),
    [
        ("bounds-notbest-age-1-396", 10),
        ("bounds-notbest-mixedgangs-1-99", 8),
        ("bounds-notbest-ports-1-1322", 6),
        ("bounds-notbest-rules-1-243", 6),
        ("bounds-notbest-rules-1-621", 10),
        ("bounds-notbest-spread-1-152", 8),
        ("gang-fits-mixedgangs-1-145", 5),
    ],
)
def test_small_rounds_place_as_many_pods_as_can_be(name: str, placed: int) -> None:
    """As many as an exhaustive search of the same dump places."""
    assert len(plan_of(name).result.placements) == placed


def test_age_crosses_priorities_where_a_policy_says_so() -> None:
    """A pod that has waited for days goes before a new one of a higher priority."""
    planned = plan_of(CROSSES)
    assert [each.pod.key for each in planned.result.placements] == ["d/old"]


@pytest.mark.parametrize("name", ["after-30s", "gang", "never", "rule", "1000-two-lows-rule"])
def test_a_pod_of_a_higher_priority_has_the_room_and_reasons_say_so(name: str) -> None:
    """Whether it may preempt or not, and whatever rules or gangs the others have."""
    result = plan_of(f"repro-priority-{name}").result
    assert [each.pod.key for each in result.placements] == ["d/high"]
    for each in result.unplaced:
        assert name == "gang" or "It went to pods of a higher priority." in each.reason


@pytest.mark.parametrize("name", ["repro-take-back-cost", "repro-take-back-cost-1000", "repro-eight-low-one-high"])
def test_the_same_plan_costs_the_same(name: str) -> None:
    """Whichever way it is found: one by one places the same pods."""
    planned = plan_of(name)
    assert planned.result.cost == run_one_by_one(planned.before, planned.policies).cost


@pytest.mark.parametrize(
    ("name", "priorities"),
    [
        ("preempt-better-victims-by-kube-order-single-2-1958", [10, 20]),
        ("preempt-better-victims-by-kube-order-single-2-4500", [0, 50]),
    ],
)
def test_the_least_important_pods_that_are_enough_leave(name: str, priorities: list[int]) -> None:
    """Beside a budget that lets some of them go. The pod that comes does not pay for those that leave."""
    scenario = scenario_of(name)
    planned = plan_scenario(scenario, NOW)
    assert sorted(each.pod.priority for each in planned.result.evictions) == priorities
    for each in planned.result.evictions:
        scenario.cluster.remove_pod(each.pod.key)
    assert _prices(plan_scenario(scenario, NOW)) == _prices(planned)


def test_all_pods_that_may_preempt_do() -> None:
    """Also after it was decided again who leaves for the pod of a higher priority."""
    result = plan_of("preempt-could-preempt-but-waits-1-816").result
    assert {each.pod.pod_class.priority for each in result.placements} == {30, 1000}


def _prices(planned: ScenarioPlan) -> int:
    return sum(each.price for each in planned.result.placements)


def _placed(planned: ScenarioPlan, priorities: list[int]) -> tuple[int, ...]:
    counts = Counter(each.pod.pod_class.priority for each in planned.result.placements)
    return tuple(counts[priority] for priority in priorities)


def _placed_by_level(scenario: Scenario, planned: ScenarioPlan) -> tuple[int, ...]:
    return _placed(planned, sorted({pod.pod_class.priority for pod in scenario.waiting()}, reverse=True))


@pytest.mark.parametrize("seed", [216])
def test_pods_with_host_ports_are_placed_as_by_any_plan(seed: int) -> None:
    """Rounds in which pods that hold ports must leave nodes to others with the same ports."""
    scenario = draw_round(seed, Shape("ports"))
    assert _placed_by_level(scenario, plan_scenario(scenario, NOW)) == most_placed(scenario)


@pytest.mark.parametrize("seed", [17, 127, 2134823])
def test_a_gang_is_made_up_of_the_members_that_fit_beside_others(seed: int) -> None:
    """Rounds in which gangs that need fewer pods than they have must need other ones than the smallest."""
    scenario = draw_round(seed, Shape("unequal gangs"))
    assert _placed_by_level(scenario, plan_scenario(scenario, NOW)) == most_placed(scenario)


@pytest.mark.parametrize("seed", [128])
def test_a_pod_outweighs_by_how_much_pods_of_higher_levels_differ(seed: int) -> None:
    """Which of two gangs waits makes a small difference at their level: less than a whole pod of the level below."""
    scenario = draw_round(seed, Shape("unequal gangs"))
    assert _placed_by_level(scenario, plan_scenario(scenario, NOW)) == most_placed(scenario)


@pytest.mark.parametrize("seed", [78])
def test_no_step_makes_a_plan_worse(seed: int) -> None:
    """An old pod of a high priority costs less to leave than two new ones, and counts for more than they do."""
    shape = Shape(old=True, per=PricedBy.POD, groups=7, members=4, preempts=False)
    prepared = prepare_scenario(draw_round(seed, shape), NOW)
    this, keys = Round(prepared.snapshot, prepared.policies), []
    while this.step():
        keys.append(this.key)
    assert len(keys) > 1
    assert keys == sorted(keys, reverse=True)


@pytest.mark.parametrize("rules", RULES)
@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_drawn_rounds_of_one_priority_place_as_many_pods_as_any_plan(rules: str, seed: int) -> None:
    """Compared with every plan of the round."""
    scenario = draw_round(seed, Shape(rules, priorities=(0,)))
    planned = plan_scenario(scenario, NOW)
    assert _placed(planned, [0]) == most_placed(scenario)
    assert left_out(planned) == []


@pytest.mark.parametrize("rules", RULES)
@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_drawn_rounds_of_several_priorities(rules: str, seed: int) -> None:
    """Level by level as many as any plan; every claim holds, also in the next round."""
    scenario = draw_round(seed, Shape(rules))
    planned = plan_scenario(scenario, NOW)
    assert _placed_by_level(scenario, planned) == most_placed(scenario)
    assert (left_out(planned), misplaced(planned), younger_before_older(planned)) == ([], [], [])
    if "gangs" not in rules:
        assert fewer_than_one_by_one(planned) == {}
    assert evicted_again(scenario, planned) == []


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rules=st.sampled_from(RULES), per=st.sampled_from(PricedBy))
def test_drawn_rounds_with_pods_that_have_waited_for_days(seed: int, rules: str, per: PricedBy) -> None:
    """Age decides within a priority, whatever counts, and none of the claims breaks."""
    scenario = draw_round(seed, Shape(rules, nodes=6, groups=8, members=6, old=True, per=per))
    planned = plan_scenario(scenario, NOW)
    assert (left_out(planned), misplaced(planned), younger_before_older(planned)) == ([], [], [])
    assert evicted_again(scenario, planned) == []


@settings(max_examples=examples(20), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rules=st.sampled_from(RULES))
def test_larger_drawn_rounds(seed: int, rules: str) -> None:
    """Where searches end with a plan that leaves room, it is filled, and no priority is passed over."""
    planned = plan_scenario(draw_round(seed, Shape(rules, nodes=20, groups=30, members=8)), NOW)
    assert (left_out(planned), misplaced(planned), younger_before_older(planned)) == ([], [], [])


@pytest.mark.parametrize("size", [1000, 64_000])
def test_a_gang_takes_no_level_from_pods_that_are_like_its_own(size: int) -> None:
    """The gang has a pod of a low priority, of such a size, and one that is like another tenant's pod."""
    gang = [
        msgspec.structs.replace(pod(name, amount, priority=priority), gangs=("g",))
        for name, amount, priority in (("like", 1000, 1000), ("low", size, 0))
    ]
    high, middle = (
        msgspec.structs.replace(pod("high", 1000, priority=1000), key="shop/high"),
        pod("m", 1000, priority=500),
    )
    drawn = replace(snapshot([node("n", 1000)], [high, middle, *gang]), gangs={"g": Gang("g", 2)})
    assert [placement.pod.key for placement in run_round(drawn).placements] == ["shop/high"]
