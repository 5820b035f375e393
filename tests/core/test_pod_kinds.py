"""More demands than the round in fractions tells apart: alike ones are taken for one, and what follows still holds."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.all_plans import all_plans
from support.constrained_snapshots import constrained_snapshots
from support.large_snapshots import large_snapshots, with_gangs
from support.model import GI, node, pod, snapshot
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import MODELS
from flowcore.model.cost_policy import PricedBy, UnscheduledPrice
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.planning.methods.admission import Admission
from flowcore.planning.methods.constructive import FixedPart
from flowcore.planning.methods.pod_kinds import PodKind, merged
from flowcore.planning.methods.relaxation import relax
from flowcore.planning.methods.rounded_relaxation import roundings
from flowcore.planning.problem.bounds.bounds import lower_bound
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.problem.demands.demands import Demand, demands_of
from flowcore.planning.problem.objective import Objective
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round import run_round

_POLICIES = {BUILT_IN.name: BUILT_IN}


def _problem(cluster: Snapshot) -> Problem:
    return Problem(cluster, _POLICIES, MODELS)


def _demands(cluster: Snapshot) -> tuple[Demand, ...]:
    return demands_of(cluster, Plan(cluster).load(), _POLICIES)


def _many_sizes(count: int) -> Snapshot:
    """As many pods as asked, no two alike, for half as much room."""
    pods = [pod(f"p{at:03}", 200 + 10 * at, 2**28 + 2**22 * (7 * at % count)) for at in range(count)]
    asked = sum(200 + 10 * at for at in range(count))
    return snapshot([node(f"n{at}", asked // 20, 400 * GI) for at in range(10)], pods)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.sampled_from((2000, 4000, 8000)), min_size=1, max_size=3),
    st.lists(
        st.tuples(st.sampled_from((500, 1000, 1500, 4000)), st.sampled_from((0, 1, 3)), st.sampled_from("ab ")),
        min_size=2, max_size=5,
    ),
    st.integers(1, 3),
)  # fmt: skip
def test_no_plan_beats_the_bound_of_merged_demands(
    nodes: list[int], pods: list[tuple[int, int, str]], most: int
) -> None:
    """Against all plans of small clusters, however coarsely demands were merged."""
    cluster = snapshot(
        [node(f"n{at}", cpu, labels=(("zone", "ab"[at % 2]),)) for at, cpu in enumerate(nodes)],
        [
            pod(f"p{at}", cpu, gi * GI, node_selector=(("zone", zone),) if zone != " " else ())
            for at, (cpu, gi, zone) in enumerate(pods)
        ],
    )
    start, demands = Plan(cluster), _demands(cluster)
    matrix = CostMatrix(demands, start)
    best = min(Objective(demands, start).total(commits) for commits in all_plans(demands, start))
    relaxed = relax(matrix, most_kinds=most)
    if relaxed is not None:
        assert len(relaxed.members) <= max(most, len({demand.potential for demand in demands}))
        assert lower_bound(matrix, shadow_prices=relaxed.shadow_prices, loads=relaxed.loads) <= best


@settings(max_examples=examples(40), deadline=None)
@given(st.one_of(large_snapshots(), constrained_snapshots()), st.integers(1, 4))
def test_shares_of_merged_demands_break_no_rule(cluster: Snapshot, most: int) -> None:
    """Each way to round places no more pods than there are; the candidate can be placed once more from the start."""
    problem = _problem(cluster)
    relaxed = relax(problem.cost_matrix, most_kinds=most) if problem.demands else None
    if relaxed is None:
        return
    for build in roundings(problem, relaxed, FixedPart.none(problem)):
        found = build()
        capacity = problem.start.copy()
        for commit in found.commits:
            assert capacity.place(problem.demands[commit.demand], commit.node, commit.count) == commit.count
        placed = Counter(commit.demand for commit in found.commits for _ in range(commit.count))
        assert all(count <= problem.demands[at].count for at, count in placed.items())
        assert found.cost == problem.cost(found.commits, found.admitted)


@settings(max_examples=examples(30), deadline=None)
@given(with_gangs(), st.integers(1, 3))
def test_gangs_may_have_merged_demands(cluster: Snapshot, most: int) -> None:
    """Pods that a gang needs count for the merged demand; the bound of the admission's best plan holds."""
    problem = _problem(cluster)
    if not problem.demands:
        return
    admission = Admission(problem)
    for _ in admission.run():
        pass
    relaxed = relax(problem.cost_matrix, most_kinds=most)
    if relaxed is not None:
        bound = lower_bound(
            problem.unreserved_cost_matrix, shadow_prices=relaxed.shadow_prices, loads=relaxed.loads,
            atomic_groups=problem.atomic_groups.all,
        )  # fmt: skip
        assert bound <= admission.best.cost


def test_hundreds_of_classes_have_a_bound_and_shares() -> None:
    """310 classes are planned as 290 are: most of the cost is proved, and as large a part of the pods is placed."""
    policies = {BUILT_IN.name: Policy(BUILT_IN.name, unscheduled=UnscheduledPrice(per=PricedBy.POD))}
    few, many = (run_round(_many_sizes(count), policies, steps=4) for count in (290, 310))
    assert few.gap < 0.1
    assert many.gap < 0.1
    assert len(many.placements) / 310 > len(few.placements) / 290 - 0.02


def _kinds(demands: tuple[Demand, ...], cluster: Snapshot) -> list[PodKind]:
    matrix = CostMatrix(demands, Plan(cluster))
    return [PodKind.of_demand(matrix, at, float(demand.count)) for at, demand in enumerate(demands)]


def test_demands_are_merged_only_where_there_are_too_many() -> None:
    """As many as there may be stay as they are: mean pods, arcs and counts are those of the demand."""
    cluster = _many_sizes(20)
    demands = _demands(cluster)
    kinds = _kinds(demands, cluster)
    assert merged(kinds, 20) == kinds
    found = merged(kinds, 6)
    assert len(found) == 6
    assert sorted(at for each in found for at in each.members) == list(range(20))
    for each in found:
        mine = [demands[at].requests for at in each.members]
        assert (np.min(mine, axis=0) <= each.requests).all()
        assert (each.requests <= np.max(mine, axis=0)).all()
        assert each.pods == len(each.members)


def test_pods_for_different_nodes_are_merged_last() -> None:
    """Demands with nodes of their own share a group only where there are more sets of nodes than groups."""
    nodes = [node(f"n{at}", 8000, 64 * GI, labels=(("of", str(at)),)) for at in range(12)]
    pods = [
        pod(f"p{at}-{size}", size, GI, node_selector=(("of", str(at)),))
        for at in range(12)
        for size in (500, 900, 4000)
    ]
    cluster = snapshot(nodes, pods)
    kinds = _kinds(_demands(cluster), cluster)
    for most in (12, 20):
        groups = merged(kinds, most)
        assert len(groups) == most
        assert all(int((each.counts > 0).sum()) == 1 for each in groups)
    groups = merged(kinds, 7)
    assert len(groups) <= 7
    assert sum(int((each.counts > 0).sum()) == 1 for each in groups) >= 3
    assert sorted(at for each in groups for at in each.members) == list(range(36))


def test_the_dearest_to_leave_get_the_shares_of_a_group() -> None:
    """Two demands that are taken for one: its share goes to the pods that are worth more than they pay."""
    urgent = [pod(f"u{at}", 1000, GI, priority=1000) for at in range(4)]
    others = [pod(f"o{at}", 1010, GI) for at in range(8)]
    problem = _problem(snapshot([node("n", 4100, 64 * GI)], [*others, *urgent]))
    relaxed = relax(problem.cost_matrix, most_kinds=1)
    assert relaxed is not None
    found = roundings(problem, relaxed, FixedPart.none(problem))[0]()
    assert {problem.demands[each.demand].group.pod_class.priority for each in found.commits} == {1000}
