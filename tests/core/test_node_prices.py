"""What one more pod costs on a node after a plan, and what one fewer saves."""

from dataclasses import replace

import msgspec
import numpy as np
from hypothesis import given, settings
from support.draw import Case
from support.mixed_snapshots import mixed_snapshots
from support.profiles import examples
from support.verdicts import snapshot_of
from thalweg_controlplane.client.objects import node as node_named
from thalweg_controlplane.client.objects import pod

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import MODELS
from flowcore.model.gangs import Gang
from flowcore.model.policies import BUILT_IN, Delivery, Policy
from flowcore.planning.methods.constructive import fill
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round import Round
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


def test_pods_of_gangs_have_prices() -> None:
    """Their places shift with kube-scheduler's question like those of other pods; without prices they are nominated."""
    extender = Policy(name=BUILT_IN.name, delivery=Delivery.EXTENDER)
    snapshot = snapshot_of(Case([node_named("a"), node_named("b")], [], [pod("p", "1"), pod("q", "1")]))
    members = tuple(msgspec.structs.replace(each, gangs=("g",)) for each in snapshot.pending)
    planned = Round(replace(snapshot, pending=members, gangs={"g": Gang("g", 2)}), {extender.name: extender})
    while planned.step():
        pass
    (prices,) = planned.node_prices()
    assert {each.key for each in prices.pods} == {"default/p", "default/q"}
    assert prices.open.all()
    assert prices.savings


def test_a_gang_that_is_kept_to_one_domain_tells_no_prices() -> None:
    """They would be taken for those of other pods of its class, and these would be kept to that domain as well."""
    extender = Policy(name=BUILT_IN.name, delivery=Delivery.EXTENDER)
    nodes = [node_named(name, labels={"rack": f"r-{name}"}) for name in "ab"]
    snapshot = snapshot_of(Case(nodes, [], [pod("p", "1"), pod("q", "1")]))
    first, alone = snapshot.pending
    pending = msgspec.structs.replace(first, gangs=("g",)), alone
    for domain, told in (("", [{first.key}, {alone.key}]), ("r-a", [{alone.key}])):
        gangs = {"g": Gang("g", 1, topology_key="rack", domain=domain)}
        planned = Round(replace(snapshot, pending=pending, gangs=gangs), {extender.name: extender})
        while planned.step():
            pass
        known = list(planned.node_prices())
        assert [{priced.key for priced in prices.pods} for prices in known] == told
        assert all(prices.open.all() for prices in known)


def _without_one(commits: tuple[Commit, ...], demand: int, node: int) -> list[Commit]:
    place = next(at for at, each in enumerate(commits) if (each.demand, each.node) == (demand, node))
    fewer = replace(commits[place], count=commits[place].count - 1)
    return [*commits[:place], *([fewer] if fewer.count else []), *commits[place + 1 :]]
