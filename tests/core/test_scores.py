"""Scores for pods that kube-scheduler may place itself: the plan's costs in its terms."""

import msgspec
from hypothesis import given, settings
from support.draw import Case
from support.mixed_snapshots import mixed_snapshots
from support.profiles import examples
from support.verdicts import snapshot_of
from thalweg_controlplane.client.objects import node, pod

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import MODELS
from flowcore.model.policies import BUILT_IN, Delivery, Policy, Steering
from flowcore.planning.methods.constructive import fill
from flowcore.planning.problem.problem import Problem, priced
from flowcore.planning.round import Round
from flowcore.planning.round.node_prices import CLOSED, node_prices
from flowcore.planning.scores import scores_of

PREFER = Policy(name=BUILT_IN.name, delivery=Delivery.EXTENDER, steering=Steering.PREFER)


def scores(case: Case, policy: Policy) -> dict[str, dict[str, int]]:
    """Of each waiting pod's nodes, once the plan is carried out."""
    snapshot = snapshot_of(case)
    planned = Round(snapshot, {policy.name: policy})
    while planned.step():
        pass
    names = [each.name for each in snapshot.table.nodes]
    return {
        pod.key: dict(zip(names, scores_of(priced.prices, priced.prices != CLOSED).tolist(), strict=True))
        for priced in planned.node_prices()
        for pod in priced.pods
    }


def test_the_cheapest_has_ten_and_the_dearest_none() -> None:
    """As full as the plan leaves the nodes; a node that the pod may not use scores nothing however empty it is."""
    taint = {"key": "k", "effect": "NoSchedule"}
    nodes = [node("empty"), node("busy"), node("full"), node("closed", taints=[taint])]
    running = [pod("r1", "2", nodeName="busy"), pod("r2", "4", nodeName="full")]
    found = scores(Case(nodes, running, [pod("p", "8")]), PREFER)["default/p"]
    assert (found["empty"], found["full"], found["closed"]) == (10, 0, 0)
    assert 0 < found["busy"] < 10


def test_a_plan_counts_in_its_scores() -> None:
    """The node that the plan fills is dear for what stays out."""
    nodes = [node("a", cpu="4"), node("b", cpu="4")]
    found = scores(Case(nodes, [pod("r", "1", nodeName="b")], [pod("p", "4"), pod("q", "4")]), PREFER)
    assert {each["a"] for each in found.values()} == {0}
    assert {each["b"] for each in found.values()} == {10}


def test_a_node_that_was_full_as_the_round_began_has_its_score() -> None:
    """Its room may come free before the next round. Pods that must have the planned node need no such price."""
    case = Case([node("a", cpu="4"), node("b", cpu="8")], [pod("r", "4", nodeName="a"), pod("s", "7", nodeName="b")],
                [pod("p", "2")])  # fmt: skip
    assert scores(case, PREFER)["default/p"] == {"a": 0, "b": 10}
    assert set(scores(case, msgspec.structs.replace(PREFER, steering=Steering.REQUIRE))["default/p"].values()) == {0}


@settings(max_examples=examples(30))
@given(mixed_snapshots())
def test_scores_are_what_the_nodes_cost_with_the_plan_on_them(mixed: Snapshot) -> None:
    """Of all nodes that the filters allow, full or not, by their load as the plan leaves it."""
    problem = Problem(mixed, {PREFER.name: PREFER}, MODELS)
    plan = fill(problem)
    load = plan.capacity.load()
    for demand, found in zip(problem.demands, node_prices(problem, problem.demands, plan), strict=True):
        costs = priced(problem, demand)
        marginal = costs.arc + costs.potential.increase(load, costs.size)
        assert (found.prices != CLOSED).tolist() == demand.allowed.tolist()
        assert found.prices[demand.allowed].tolist() == marginal[demand.allowed].tolist()
