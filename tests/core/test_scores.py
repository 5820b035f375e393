"""Scores for pods that kube-scheduler may place itself: the plan's costs in its terms."""

from support.draw import Case
from support.verdicts import snapshot_of
from thalweg_controlplane.client.objects import node, pod

from flowcore.model.policies import BUILT_IN, Delivery, Policy, Steering
from flowcore.planning.round import Round

PREFER = Policy(name=BUILT_IN.name, delivery=Delivery.EXTENDER, steering=Steering.PREFER)


def scores(case: Case, policy: Policy) -> dict[str, dict[str, int]]:
    """Of each waiting pod's nodes, once the plan is carried out."""
    snapshot = snapshot_of(case)
    planned = Round(snapshot, {policy.name: policy})
    while planned.step():
        pass
    names = [each.name for each in snapshot.table.nodes]
    return {
        each.key: dict(zip(names, found.tolist(), strict=True)) for pods, found in planned.scores() for each in pods
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


def test_nobody_else_pays_for_them() -> None:
    """Required pods have no scores."""
    assert scores(Case([node("a")], [], [pod("p")]), Policy(name=BUILT_IN.name, delivery=Delivery.EXTENDER)) == {}
