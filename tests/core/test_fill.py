"""Filling: all pods of a class at once, where placing them one after the other would put them."""

from hypothesis import given, settings
from hypothesis import strategies as st
from support.crowds import crowds

from flowcore.model.policies import BUILT_IN, CostWeights, Policy
from flowcore.model.snapshot import Snapshot
from flowcore.rounds.demands import demands_of
from flowcore.rounds.field import Field
from flowcore.rounds.fill import plan_by_filling
from flowcore.rounds.pricing import total_cost, unplaced
from flowcore.rounds.room import Room


@settings(max_examples=200)
@given(crowds(), st.sampled_from((0, 1, 5)))
def test_a_class_at_once_goes_where_its_pods_would_go_one_by_one(crowd: Snapshot, weight: int) -> None:
    """As many, at the same cost, where slots only rise in cost (with balance above leastRequested they may fall)."""
    policies = {BUILT_IN.name: Policy(BUILT_IN.name, weights=CostWeights(least_requested=weight, balance=0))}
    start = Room(crowd)
    demands = demands_of(crowd, start.load(), policies)
    field = Field.of(demands, start)
    for at, demand in enumerate(demands):
        at_once = plan_by_filling(field, [(at, demand.count)], start.copy())
        in_turn = plan_by_filling(field, [(at, 1)] * demand.count, start.copy())
        assert unplaced(at_once, demands) == unplaced(in_turn, demands)
        costs = [total_cost(commits, demands, start.load()) for commits in (at_once, in_turn)]
        assert costs[0] == costs[1]
