"""Who gives way in a round with rules between pods: no more than need to, and no pod for one that is less important."""

import pytest
from support.eviction_safety import check_evictions
from support.levels import NOW, evicted_again, left_out, misplaced, plan_of
from support.profiles import is_quick
from support.ruled_rounds import draw_ruled, kept_out_by_lower_ones

from flowcore.model.running_pods import EvictionKind
from flowcore.questions.scenario import ScenarioPlan, plan_scenario

#: Each about 0.1 s.
DRAWS = 6 if is_quick() else 700
#: Draws, by whether there are PodDisruptionBudgets, in which a running pod and waiting ones are in the way.
DECIDED_TOGETHER = ((False, 138), (False, 400), (True, 530))


@pytest.mark.parametrize(
    ("name", "placed", "waiting", "leaving"),
    [
        ("inversion-rule", ["high"], ["low"], ["runs"]),
        ("inversion-preferred", ["urgent", "web-2"], ["web-1"], ["batch-1"]),
        ("inversion-counted", ["high"], ["low"], ["runs"]),
        ("inversion-taken-back", ["high", "middle"], ["low"], ["batch"]),
        ("in-vain-zone", ["new-1", "new-2"], [], ["guard-1", "guard-2"]),
        ("in-vain-move", ["new-1", "new-2", "new-3"], [], ["c-1", "c-2", "large", "moves"]),
        ("one-victim-too-many", ["new-1", "new-2"], [], ["guard-1"]),
        ("gang-unequal", ["member-1", "member-3"], ["member-2"], []),
    ],
)
def test_who_comes_and_who_leaves(name: str, placed: list[str], waiting: list[str], leaving: list[str]) -> None:
    """A new pod with a rule waits as one without; whom no rule is about stays, and who may stay is asked again."""
    planned = plan_of(name)
    check_evictions(planned.before, planned.result, planned.policies)
    result = planned.result
    assert sorted(each.pod.key for each in result.placements) == [f"shop/{pod}" for pod in placed]
    assert sorted(each.pod.key for each in result.unplaced) == [f"shop/{pod}" for pod in waiting]
    assert sorted(each.pod.key for each in result.evictions) == [f"shop/{pod}" for pod in leaving]


def test_a_pod_that_a_filter_rejects_after_all_leaves_no_move_for_a_lower_one() -> None:
    """Both pods get nodes, and the lowest one waits, which keeps the other from them. Nobody moves for a lower pod."""
    planned = plan_of("moved-for-lower")
    check_evictions(planned.before, planned.result, planned.policies)
    assert sorted(each.pod.key for each in planned.result.placements) == ["shop/high", "shop/low"]
    moved = [each for each in planned.result.evictions if each.pod.key == "shop/important"]
    assert all(each.for_pods == ("shop/high",) for each in moved)


@pytest.mark.parametrize("budgets", [False, True])
@pytest.mark.parametrize("moves", [False, True])
def test_in_drawn_rounds_nobody_gives_way_in_vain_or_for_a_lower_pod(*, moves: bool, budgets: bool) -> None:
    """No victim could have stayed, no lower pod of the plan or of the cluster keeps out one that may preempt."""
    evicting = 0
    for seed in range(DRAWS):
        evicting += _evicts_rightly(seed, moves=moves, budgets=budgets)
    assert evicting > DRAWS / 3


@pytest.mark.parametrize(("budgets", "seed"), DECIDED_TOGETHER)
def test_who_is_in_the_way_together(*, budgets: bool, seed: int) -> None:
    """The same of these: one pod after the other nobody would leave."""
    _evicts_rightly(seed, moves=False, budgets=budgets)


def _evicts_rightly(seed: int, *, moves: bool, budgets: bool) -> bool:
    """Whether anybody leaves; nobody does in vain or for a lower pod."""
    scenario = draw_ruled(seed, budgets=budgets)
    planned = plan_scenario(scenario, NOW, reschedule=moves)
    check_evictions(planned.before, planned.result, planned.policies)
    assert (misplaced(planned), left_out(planned), _for_lower(planned)) == ([], [], []), seed
    if not budgets:
        assert kept_out_by_lower_ones(planned) == [], seed
    if not moves:
        assert evicted_again(scenario, planned) == [], seed
    return bool(planned.result.evictions)


def test_a_victim_leaves_for_the_pods_that_wait_for_it() -> None:
    """Not for those that come at once beside it."""
    for seed in range(DRAWS):
        result = plan_scenario(draw_ruled(seed), NOW).result
        waiting = {each.pod.key: each.victims for each in result.placements}
        for each in result.evictions:
            assert all(each.pod.key in waiting[key] for key in each.for_pods), seed


def _for_lower(planned: ScenarioPlan) -> list[str]:
    """Pods that are moved for one of a lower priority, or evicted for one that is not above them."""
    priorities = {pod.key: pod.pod_class.priority for pod in planned.before.pending}
    return [
        each.pod.key
        for each in planned.result.evictions
        for key in each.for_pods
        if priorities[key] < each.pod.priority + (each.kind is EvictionKind.PREEMPTION)
    ]
