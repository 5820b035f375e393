"""A pod that comes alone gets the node that kube-scheduler's default profile would give it."""

from statistics import median
from typing import Any

import pytest
from support.default_profile import HOST, ROWS, ZONE, DrawnCluster, Manifest, draw_cluster, manifest_pod, term
from support.scenario_state import NOW, scenario_of

from flowcore.questions.scenario import plan_scenario

#: Clusters of each row, and on how many of them the node must be the same.
CLUSTERS, SAME = 50, 47


def chosen(drawn: DrawnCluster) -> str:
    """The node that a plan of the built-in policy has for the waiting pod."""
    (placement,) = plan_scenario(scenario_of(drawn.objects), NOW).result.placements
    return placement.node


def losses(row: str, seeds: range) -> list[int]:
    """By how many of kube-scheduler's points the planned node is below its best, on drawn clusters; those above 0."""
    found = []
    for seed in seeds:
        drawn = draw_cluster(row, seed)
        totals = drawn.totals()
        found.append(max(totals.values()) - totals[chosen(drawn)])
    return sorted(loss for loss in found if loss)


def test_a_lone_pod_gets_kube_schedulers_node() -> None:
    """Whatever it prefers, with whatever numbers: on nearly all drawn clusters, and nowhere a bad one."""
    lost = [loss for row in ROWS for loss in losses(row, range(2))]
    assert len(lost) <= 2, lost
    assert max(lost, default=0) <= 2, lost


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS)
def test_a_lone_pod_gets_kube_schedulers_node_on_many_clusters(row: str) -> None:
    """The same on fifty clusters for each kind of preference and each weight."""
    lost = losses(row, range(CLUSTERS))
    assert CLUSTERS - len(lost) >= SAME, lost
    assert not lost or median(lost) <= 2, lost


# -- manifests that come from kube-scheduler ---------------------------------------------------------------------------


def node(name: str, zone: str = "a", cpu: int = 10_000, **spec: Any) -> Manifest:
    labels = {HOST: name, ZONE: zone, "disk": name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": {"cpu": f"{cpu}m", "memory": "10240Mi", "pods": "110"}},
    }


def filling(name: str, share: int, cpu: int = 10_000) -> Manifest:
    """A pod that takes so many percent of a node."""
    return manifest_pod(f"on-{name}", share * cpu // 100, share * 10_240 // 100, "other", nodeName=name)


def nodes_of(objects: list[Manifest]) -> dict[str, str]:
    """Node of each pod that is planned."""
    placements = plan_scenario(scenario_of(objects), NOW).result.placements
    return {placement.pod.key.removeprefix("default/"): placement.node for placement in placements}


def likes(*weights: tuple[str, int]) -> Manifest:
    """Preferred nodes by name, each with a weight."""
    terms = [
        {"weight": weight, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": [name]}]}}
        for name, weight in weights
    ]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


def wish(kind: str, weight: int, app: str) -> Manifest:
    """Preferred pod affinity or anti-affinity on a node."""
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": weight, "podAffinityTerm": term(app, HOST)}
    ]}}  # fmt: skip


@pytest.mark.parametrize("count", [2, 3, 5])
def test_replicas_with_soft_anti_affinity_of_weight_1_are_apart(count: int) -> None:
    """As most charts write it: one on each node, though one node is empty and the others are not."""
    nodes = [node(f"n{at}") for at in range(count)]
    replicas = [
        manifest_pod(f"db-{at}", 100, 128, "db", affinity=wish("podAntiAffinity", 1, "db")) for at in range(count)
    ]
    chosen_nodes = nodes_of([*nodes, *(filling(f"n{at}", 20) for at in range(1, count)), *replicas])
    assert sorted(chosen_nodes.values()) == [f"n{at}" for at in range(count)]


@pytest.mark.parametrize("weight", [1, 100])
def test_a_weight_of_1_counts_as_much_as_one_of_100(weight: int) -> None:
    """A preferred node, or one with a partner, is taken though another is emptier, whatever the number."""
    nodes, partner = [node("n1"), node("n2")], manifest_pod("partner", 1000, 1024, "partner", nodeName="n2")
    for affinity in (likes(("n2", weight)), wish("podAffinity", weight, "partner")):
        assert nodes_of([*nodes, partner, manifest_pod("p", 100, 128, "web", affinity=affinity)]) == {"p": "n2"}


def test_two_terms_do_not_outweigh_a_taint() -> None:
    """Node affinity is worth 200 points at most, PreferNoSchedule taints 300."""
    tainted = node("n1", taints=[{"key": "slow", "effect": "PreferNoSchedule"}])
    affinity = likes(("n1", 100), ("n1", 100))
    assert nodes_of([tainted, node("n2"), manifest_pod("p", 100, 128, "web", affinity=affinity)]) == {"p": "n2"}


@pytest.mark.parametrize("closed", ["full", "cordoned", "beside one that it must be far from"])
def test_nodes_that_take_no_pod_are_not_compared(closed: str) -> None:
    """A node that is worth 100 and takes nothing does not make one that is worth 1 as bad as one worth nothing."""
    affinity = likes(("n1", 100), ("n2", 1))
    objects = [node("n1"), node("n2"), node("n3"), filling("n2", 20)]
    if closed == "full":
        objects.append(filling("n1", 100))
    elif closed == "cordoned":
        objects[0] = node("n1", unschedulable=True)
    else:
        objects.append(manifest_pod("foe", 100, 128, "foe", nodeName="n1"))
        far = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("foe", HOST)]}}
        affinity |= far
    assert nodes_of([*objects, manifest_pod("p", 100, 128, "web", affinity=affinity)]) == {"p": "n2"}


def test_points_let_pods_compete_for_a_node() -> None:
    """By points the pod that says more gets the node that two want."""
    nodes = [node("n1", cpu=1000), node("n2"), node("n3")]
    little, much = (
        manifest_pod(name, 1000, 128, "web", affinity=likes(("n1", weight)))
        for name, weight in (("a-little", 1), ("b-much", 100))
    )
    policy = {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowSchedulingPolicy",
        "metadata": {"name": "points"},
        "spec": {"selects": {"podSelector": {}}, "cost": {"preferences": "Points"}},
    }
    assert nodes_of([policy, *nodes, little, much])["b-much"] == "n1"
