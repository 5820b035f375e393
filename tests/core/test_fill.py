"""Filling: all pods of a class at once, where placing them one after the other would put them."""

from hypothesis import given, settings
from hypothesis import strategies as st
from support.large_snapshots import large_snapshots
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.cost_policy import CostPolicy, CostWeights
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.planning.methods.greedy import greedy
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.problem.demands.demands import demands_of
from flowcore.planning.problem.objective import Objective, unplaced_counts
from flowcore.planning.problem.placements.plans import Plan


@settings(max_examples=examples(200))
@given(large_snapshots(), st.sampled_from((0, 1, 5)))
def test_a_class_at_once_goes_where_its_pods_would_go_one_by_one(crowd: Snapshot, weight: int) -> None:
    """As many, at the same cost, where slots only rise in cost (with balance above leastRequested they may fall)."""
    weights = CostWeights(least_requested=weight, balance=0)
    policies = {BUILT_IN.name: Policy(BUILT_IN.name, cost=CostPolicy(weights=weights))}
    start = Plan(crowd)
    demands = demands_of(crowd, start.load(), policies)
    field = CostMatrix(demands, start)
    for at, demand in enumerate(demands):
        at_once = greedy(field, [(at, demand.count)], start.copy())
        in_turn = greedy(field, [(at, 1)] * demand.count, start.copy())
        assert unplaced_counts(at_once, demands) == unplaced_counts(in_turn, demands)
        costs = [Objective(demands, start).total(commits) for commits in (at_once, in_turn)]
        assert costs[0] == costs[1]
