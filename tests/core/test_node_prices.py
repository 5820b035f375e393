"""What one more pod costs on a node after a plan, and what one fewer saves."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from support.mixed_snapshots import mixed_snapshots
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import MODELS
from flowcore.planning.methods.constructive import fill
from flowcore.planning.problem.placements.commits import Commit
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round.node_prices import node_prices
from flowcore.planning.round.round import DEFAULT_POLICIES


@settings(max_examples=examples(30))
@given(mixed_snapshots())
def test_prices_and_savings_are_differences_of_the_cost(mixed: Snapshot) -> None:
    """The cost of the plan with one more pod on a node, and without one of those that it has there."""
    problem = Problem(mixed, DEFAULT_POLICIES, MODELS)
    plan = fill(problem)
    cost = problem.objective.placed(plan.commits)
    for at, found in enumerate(node_prices(problem, problem.demands, plan)):
        mine = {each.node for each in plan.commits if each.demand == at}
        assert set(found.savings) == mine
        for node, saving in found.savings.items():
            assert cost - problem.objective.placed(_without_one(plan.commits, at, node)) == saving
        for node in np.flatnonzero(found.open)[:3].tolist():
            more = (*plan.commits, Commit(at, node, 1))
            assert problem.objective.placed(more) - cost == found.prices[node]


def _without_one(commits: tuple[Commit, ...], demand: int, node: int) -> list[Commit]:
    place = next(at for at, each in enumerate(commits) if (each.demand, each.node) == (demand, node))
    fewer = replace(commits[place], count=commits[place].count - 1)
    return [*commits[:place], *([fewer] if fewer.count else []), *commits[place + 1 :]]
