"""Odd clusters: nothing raises, nothing is overcommitted, and every pod that waits is told why."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.draw import Case, Manifest, crowded_cases
from support.model import amounts, node, pod, snapshot
from support.profiles import examples
from support.safety import plan_and_check
from support.verdicts import read_pods, snapshot_of

from flowcore.model.nodes import Node
from flowcore.planning.round import run_one_by_one
from flowcore.rules.filters import run_filters
from flowcore.rules.reasons import node_reasons

MOST = 2**63 - 1
HUGE = (
    "9223372036854775807",
    "9223372036854775808",
    "8Ei",
    "7Ei",
    "1e30",
    "1e9999",
    "4611686018427387904",
    "1",
    "0",
    "1n",
)


def pod_manifest(name: str, requests: Manifest, **spec: Any) -> Manifest:
    container = {"name": "main", "resources": {"requests": requests}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container], **spec}}


def node_manifest(name: str, allocatable: Manifest | None) -> Manifest:
    return {
        "metadata": {"name": name},
        "spec": {},
        "status": {} if allocatable is None else {"allocatable": allocatable},
    }


def test_a_cluster_without_nodes() -> None:
    """All pods wait, and are told that there are none."""
    result = plan_and_check(snapshot([], [pod("a", 1000), pod("b")]))
    assert {left.reason for left in result.unplaced} == {"0/0 nodes are available: the cluster has no nodes."}


def test_nothing_pending() -> None:
    """An empty plan that costs nothing."""
    result = plan_and_check(snapshot([node("a")], []))
    assert (result.placements, result.unplaced, result.cost) == ((), (), 0)


@pytest.mark.parametrize("allocatable", [None, {}, {"cpu": "4"}, {"cpu": "0", "memory": "0", "pods": "0"}])
def test_nodes_that_offer_nothing(allocatable: Manifest | None) -> None:
    """Without places for pods nothing goes there, not even what asks for nothing."""
    cluster = snapshot_of(Case([node_manifest("a", allocatable)], [], [pod_manifest("p", {})]))
    result = plan_and_check(cluster)
    assert [left.reason for left in result.unplaced] == ["0/1 nodes are available: 1 Too many pods."]


@pytest.mark.parametrize(
    ("quantity", "problem"), [("abc", "is not a quantity"), ("-1", "is negative"), ("", "is not a")]
)
def test_a_node_whose_allocatable_cannot_be_read_takes_nothing(quantity: str, problem: str) -> None:
    """It disturbs no other node, and what is said of it names the field."""
    nodes = [node_manifest("bad", {"cpu": quantity, "pods": "110"}), node_manifest("good", {"cpu": "1", "pods": "110"})]
    cluster = snapshot_of(Case(nodes, [], [pod_manifest("p", {"cpu": "1"}), pod_manifest("q", {"cpu": "1"})]))
    result = plan_and_check(cluster)
    assert [p.node for p in result.placements] == ["good"]
    assert "1 node(s) with an unreadable allocatable" in result.unplaced[0].reason
    reason = node_reasons(result.unplaced[0].pod.pod_class, result.after)["bad"]
    assert "status.allocatable.cpu" in reason
    assert problem in reason


def test_a_node_that_offers_too_many_resources_takes_nothing() -> None:
    """Each name would be a column of all nodes: only that node is left out, and what is said of it names the field."""
    room = {"cpu": "1", "pods": "110"}
    many = {at: room | {f"example.com/r{number}": "1" for number in range(at - len(room))} for at in (256, 257)}
    nodes = [node_manifest("most", many[256]), node_manifest("more", many[257])]
    cluster = snapshot_of(Case(nodes, [], [pod_manifest("p", {"cpu": "1"}), pod_manifest("q", {"cpu": "1"})]))
    result = plan_and_check(cluster)
    assert [p.node for p in result.placements] == ["most"]
    assert len(cluster.resources) < 260
    reason = node_reasons(result.unplaced[0].pod.pod_class, result.after)["more"]
    assert reason == "node's status.allocatable: it names more than 256 resources"


@pytest.mark.parametrize(
    ("quantity", "problem"), [("abc", "is not a quantity"), ("-1", "is negative"), ("1 Gi", "is not")]
)
def test_a_pod_whose_request_cannot_be_read_is_blocked(quantity: str, problem: str) -> None:
    """With the field's name; it counts for nothing and others go on."""
    bad, good = read_pods([pod_manifest("bad", {"cpu": quantity}), pod_manifest("good", {"cpu": "1"})])
    assert bad.blocked_reason.startswith("spec.containers[0].resources.requests.cpu: ")
    assert problem in bad.blocked_reason
    assert not good.blocked_reason


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (
            {"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "x"}}}]},
            "spec.initContainers[0].resources",
        ),
        ({"overhead": {"memory": "x"}}, "spec.overhead.memory"),
        ({"resources": {"requests": {"memory": "x"}}}, "spec.resources.requests.memory"),
    ],
)
def test_wherever_the_request_stands(spec: Manifest, field: str) -> None:
    """The field is named where it is."""
    assert read_pods([pod_manifest("p", {}, **spec)])[0].blocked_reason.startswith(field)


def test_a_running_pod_that_cannot_be_read_fills_its_node_and_no_other() -> None:
    """Room that is not known to be free is not given away; one on a node that does not exist disturbs nobody."""
    running = [
        pod_manifest("bad", {"cpu": "x"}, nodeName="a"),
        pod_manifest("lost", {"cpu": "1"}, nodeName="gone"),
        {**pod_manifest("resized", {"cpu": "1"}, nodeName="b"), "status": {"containerStatuses": [
            {"name": "main", "resources": {"requests": {"cpu": "x"}}}]}},
    ]  # fmt: skip
    cluster = snapshot_of(
        Case(
            [node_manifest(name, {"cpu": "2", "pods": "9"}) for name in "ab"],
            running,
            [pod_manifest("p", {"cpu": "1"}), pod_manifest("q", {"cpu": "1"})],
        )
    )
    assert [placement.node for placement in plan_and_check(cluster).placements] == ["b"]
    assert int(cluster.used[1, 0]) == 1000


@pytest.mark.parametrize(("reasons", "held"), [(("Deferred", "Infeasible"), 3000), (("Infeasible", "Deferred"), 1000)])
def test_the_first_pending_resize_decides(reasons: tuple[str, str], held: int) -> None:
    """A pod holds what it asks for unless its resize is infeasible; kube-scheduler reads the first condition."""
    running = {
        **pod_manifest("resized", {"cpu": "3"}, nodeName="a"),
        "status": {
            "containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason} for reason in reasons],
        },
    }
    cluster = snapshot_of(Case([node_manifest("a", {"cpu": "4", "pods": "9"})], [running], []))
    assert int(cluster.used[0, 0]) == held


def test_a_node_that_is_overcommitted_already() -> None:
    """It takes only what asks for nothing that is short."""
    running = [("a", amounts(9000, 1), ())]
    result = plan_and_check(snapshot([node("a", 4000)], [pod("cpu", 1), pod("memory", 0, 1)], running))
    assert [p.pod.key for p in result.placements] == ["default/memory"]


def test_two_nodes_of_one_name() -> None:
    """The last one counts, as in a dump that has an object twice."""
    cluster = snapshot([node("a", 1000), node("a", 2000)], [pod("p", 2000)])
    assert len(plan_and_check(cluster).placements) == 1


@pytest.mark.parametrize("resource", ["cpu", "memory", "ephemeral-storage", "example.com/x"])
@pytest.mark.parametrize("amount", [MOST, MOST - 1, 2**62, 2**62 + 1])
def test_the_largest_amounts_fit_exactly_once(resource: str, amount: int) -> None:
    """Two do not fit where one fills the node, and no sum wraps around."""
    allocatable = tuple(sorted(((resource, amount), ("pods", 110))))
    pending = [pod(f"p{i}") for i in range(3)]
    huge = [p.__class__(p.key, p.uid, p.pod_class.__class__(requests=((resource, amount),)), p.policy) for p in pending]
    cluster = snapshot([Node("a", allocatable=allocatable)], huge)
    for plan in (plan_and_check(cluster), run_one_by_one(cluster)):
        assert len(plan.placements) == 1


@pytest.mark.filterwarnings("error")
@settings(max_examples=examples(150))
@given(st.data())
def test_huge_amounts_never_raise_or_overcommit(data: st.DataObject) -> None:
    """Amounts up to and beyond int64, on nodes, on running and on pending pods."""
    amounts = st.fixed_dictionaries(
        {}, optional=dict.fromkeys(["cpu", "memory", "ephemeral-storage", "x.io/y"], st.sampled_from(HUGE))
    )
    nodes = [
        node_manifest(f"n{at}", {**found, "pods": "5"})
        for at, found in enumerate(data.draw(st.lists(amounts, min_size=1, max_size=3)))
    ]
    running = [
        pod_manifest(f"r{at}", found, nodeName="n0")
        for at, found in enumerate(data.draw(st.lists(amounts, max_size=3)))
    ]
    pending = [
        pod_manifest(f"p{at}", found) for at, found in enumerate(data.draw(st.lists(amounts, min_size=1, max_size=5)))
    ]
    plan_and_check(snapshot_of(Case(nodes, running, pending)))


@settings(max_examples=examples(50))
@given(crowded_cases(), st.data())
def test_a_spoiled_quantity_anywhere_costs_one_object_only(case: Case, data: st.DataObject) -> None:
    """All other pods and nodes are planned as if it were not there."""
    spoiled = data.draw(st.sampled_from(case.pending))
    spoiled["spec"] = deepcopy(spoiled["spec"])  # copies of a pod share theirs
    spoiled["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": data.draw(st.sampled_from(["x", "-1", "1Z", ""]))}
    }
    pods = read_pods(case.pending)
    assert [p.key for p in pods if "spec.containers[0].resources.requests.cpu" in p.blocked_reason] == [
        f"{spoiled['metadata']['namespace']}/{spoiled['metadata']['name']}"
    ]
    plan_and_check(snapshot_of(case, place_blocked=False))


def test_filters_on_no_nodes_answer_nothing() -> None:
    """An empty table is a table."""
    cluster = snapshot([], [pod("p", node_selector=(("a", "b"),))])
    verdicts = run_filters(cluster.pending[0].pod_class, cluster)
    assert verdicts.fits.shape == (0,)
    assert not verdicts.counts()
