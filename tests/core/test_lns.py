"""Large neighbourhood search: what is drawn ahead has no node in common, so gains add up."""

from __future__ import annotations

import random

import numpy as np
from support.model import GI, node, pod, snapshot

from flowcore.costs import MODELS
from flowcore.model.policies import BUILT_IN
from flowcore.planning.methods.constructive import fill
from flowcore.planning.methods.lns import DRAWN_AHEAD, LargeNeighbourhoodSearch
from flowcore.planning.problem.problem import Problem

NODES, PODS, SIZES = 60, 400, 12


def problem() -> Problem:
    """More pods than fit, of many sizes."""
    draw = random.Random(1)
    sizes = [(draw.randrange(300, 3000, 100), draw.randrange(1, 9) * GI) for _ in range(SIZES)]
    pods = [pod(f"p{at}", *draw.choice(sizes), created=float(at)) for at in range(PODS)]
    found = snapshot([node(f"n{at}", draw.choice((4000, 8000)), 24 * GI) for at in range(NODES)], pods, now=PODS)
    return Problem(found, {BUILT_IN.name: BUILT_IN}, MODELS)


def test_neighbourhoods_that_are_drawn_have_no_node_in_common() -> None:
    """So what they gain adds up: after each one the cost is exactly what the search says."""
    stated = problem()
    first = fill(stated)
    search = LargeNeighbourhoodSearch(stated, first, 0)
    most = 0
    for turn in range(12):
        assert search.improve(wider=turn % 3 == 2)
        nodes = np.concatenate([each.nodes for each in search._drawn])
        assert len(nodes) == len(np.unique(nodes))
        most = max(most, len(search._drawn))
        commits = search._commits()
        assert stated.objective.total(commits) == first.cost - search.gain
        assert len(search.candidate().commits) >= len(commits)
    assert search.gain > 0
    assert 1 < most < DRAWN_AHEAD


def test_a_search_that_may_not_go_on_draws_nothing_more() -> None:
    """With one more step no neighbourhood beside two is drawn."""
    search = LargeNeighbourhoodSearch(problem(), fill(problem()), 0)
    assert search.improve(more=1)
    assert len(search._drawn) == 1
    assert search.improve(more=0)
    assert not search._drawn
