"""A few urgent pods at once, and who leaves for them, beside every plan of drawn clusters and of dumps."""

import pytest
from harness.full_clusters import FullShape, draw_full
from harness.urgent_rounds import UrgentShape, best_standing, draw_urgent, standing_of
from support.eviction_clusters import node, running, snapshot, waiting
from support.eviction_safety import check_evictions
from support.levels import NOW, evicted_again, plan_of, scenario_of
from support.profiles import is_quick

from flowcore.planning.evictions.search.search import Search
from flowcore.planning.round import RoundResult, run_round
from flowcore.questions.scenario import plan_scenario

#: Rounds that are drawn, and the share of them in which a plan may be better than ours.
DRAWS, ALLOWED = 20 if is_quick() else 1_000, 0.01
SHAPES = {
    "one priority": UrgentShape((1000,)),
    "one priority, resources only": UrgentShape((1000,), rules=False),
    "two priorities": UrgentShape((1000, 30)),
}


@pytest.mark.parametrize("kind", SHAPES)
def test_seldom_is_there_a_plan_with_better_victims(kind: str) -> None:
    """In one of a hundred draws at most; every plan is legal, and nobody leaves in vain."""
    worse = evicting = 0
    for seed in range(DRAWS):
        drawn = draw_urgent(seed, SHAPES[kind])
        planned = plan_scenario(drawn.scenario, NOW)
        check_evictions(planned.before, planned.result, planned.policies)
        worse += best_standing(drawn) < standing_of(drawn, planned.result)
        evicting += bool(planned.result.evictions)
    assert evicting > DRAWS / 2
    assert worse <= max(1, ALLOWED * DRAWS)


def test_a_victim_goes_to_no_node_that_a_pod_that_leaves_keeps_it_off() -> None:
    """It comes before that pod has left. Of the draws one had such a plan."""
    drawn = draw_urgent(623, SHAPES["one priority"])
    planned = plan_scenario(drawn.scenario, NOW)
    assert planned.result.evictions
    check_evictions(planned.before, planned.result, planned.policies)


def test_a_pod_that_has_room_leaves_it_to_one_that_needs_more_victims() -> None:
    """One pod fits at once where the other one needs one victim more, and elsewhere in place of one victim."""
    result = plan_of("preempt-fewer-victims-1-34").result
    assert sorted(each.pod.priority for each in result.evictions) == [0, 20]
    assert len(result.placements) == 2


@pytest.mark.parametrize(
    ("name", "most", "placed"), [("move-fewer-moves-1-516", 1, 3), ("move-moves-would-place-but-waits-2-3359", 2, 1)]
)
def test_as_few_pods_move_as_need_to(name: str, most: int, placed: int) -> None:
    """Pods that preempt nobody and that have room may go elsewhere; of a node those move that have room elsewhere."""
    result = plan_scenario(scenario_of(f"by_name/{name}"), NOW, reschedule=True).result
    assert len(result.evictions) == most
    assert len(result.placements) == placed


@pytest.mark.parametrize("seed", range(15 if is_quick() else 300))
def test_what_is_placed_is_not_evicted_in_the_next_round(seed: int) -> None:
    """The plan is carried out and a minute passes."""
    drawn = draw_urgent(seed, SHAPES["two priorities"])
    assert evicted_again(drawn.scenario, plan_scenario(drawn.scenario, NOW)) == []


@pytest.mark.parametrize(("priority", "placed"), [(50, ["high"]), (10, ["high", "low"])])
def test_no_victim_leaves_for_the_sake_of_a_pod_below_it(priority: int, placed: list[str]) -> None:
    """Not by way of a pod above it either, for which there is room. To evict one below both is better than to wait."""
    drawn = snapshot(
        [node("n1", 4)],
        [running("runs", "n1", 2, priority=priority)],
        [waiting("high", 2, priority=1000), waiting("low", 2, priority=30)],
    )
    result = run_round(drawn)
    assert sorted(each.pod.key for each in result.placements) == [f"default/{name}" for name in placed]
    assert len(result.evictions) == len(placed) - 1


def test_a_victim_with_a_new_node_is_not_lost() -> None:
    """The victims on `b` are more, and one of them is as important. But that one has room elsewhere."""
    planned = plan_scenario(scenario_of("victim-with-a-new-node"), NOW)
    check_evictions(planned.before, planned.result, planned.policies)
    assert [(each.pod.key, each.node) for each in planned.result.placements] == [("default/urgent", "b")]
    assert {each.pod.key: each.to for each in planned.result.evictions} == {
        "default/b1-0": "",
        "default/b2-0": "",
        "default/q-50": "c",
    }


@pytest.mark.parametrize("seed", range(1 if is_quick() else 10))
def test_the_integer_program_evicts_no_more_important_pods(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gangs on tens of nodes: with it as many pods come, no more important one is lost, and of equal ones no more."""

    def compared_by(result: RoundResult) -> tuple[int, int, int]:
        lost = [each.pod.priority for each in result.evictions if not each.to]
        return -len(result.placements), max(lost, default=-1), len(lost)

    scenario = draw_full(seed, FullShape(gang=4))
    planned = plan_scenario(scenario, NOW)
    check_evictions(planned.before, planned.result, planned.policies)
    monkeypatch.setattr(Search, "decide_again", lambda *_: None)
    assert compared_by(planned.result) <= compared_by(plan_scenario(scenario, NOW).result)
