"""What Firmament and Poseidon got wrong, a test each."""

import pytest
from support.draw import Case, Manifest
from support.model import GI, amounts, node, pod, snapshot
from support.safety import plan_and_check
from support.verdicts import snapshot_of

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.pods import HostPort, Toleration
from flowcore.planning.round import RoundResult
from flowcore.rules.filters import run_filters


def placed(result: RoundResult) -> dict[str, str]:
    """Pod name -> node."""
    return {placement.pod.key.partition("/")[2]: placement.node for placement in result.placements}


def manifest(name: str, cpu: str = "1", **spec: object) -> Manifest:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container], **spec}}


def node_manifest(name: str, cpu: str = "4", **allocatable: str) -> Manifest:
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    amounts = {"cpu": cpu, "memory": "16Gi", "pods": "110", **allocatable}
    return {"metadata": metadata, "spec": {}, "status": {"allocatable": amounts}}


def read(nodes: list[Manifest], pending: list[Manifest], running: list[Manifest] | None = None) -> Snapshot:
    return snapshot_of(Case(nodes, running or [], pending), place_blocked=False)


def test_mixed_sizes_do_not_overcommit() -> None:
    """camsas/firmament#71: 4,000m, pods of 3,000m and twice 1,000m; slots counted pods, so all were bound."""
    result = plan_and_check(snapshot([node("only")], [pod("big", 3000), pod("s1", 1000), pod("s2", 1000)]))
    assert len(result.placements) == 2
    assert sum(dict(p.pod.pod_class.requests)["cpu"] for p in result.placements) <= 4000


def test_mixed_sizes_all_fit_where_they_do() -> None:
    """The same sizes on two nodes fill both to the last core."""
    pending = [pod("s1", 1000), pod("s2", 1000), pod("b1", 3000), pod("b2", 3000)]
    assert len(plan_and_check(snapshot([node("a"), node("b")], pending)).placements) == 4


@pytest.mark.parametrize(("cpu", "memory", "gpu"), [(4000, 16 * GI, 2), (4000, 0, 0), (0, 16 * GI, 0), (0, 0, 2)])
def test_exact_fits_are_used(cpu: int, memory: int, gpu: int) -> None:
    """A pod of just the size that is free goes there: strictly less was asked for once."""
    cluster = snapshot([node("only", gpu=2)], [pod("whole", cpu, memory, gpu=gpu)])
    assert placed(plan_and_check(cluster)) == {"whole": "only"}


def test_the_last_place_for_a_pod_is_used() -> None:
    """``pods`` is a resource like the others."""
    result = plan_and_check(snapshot([node("only", pods=2)], [pod("a"), pod("b"), pod("c")]))
    assert len(result.placements) == 2
    assert result.unplaced[0].reason == (
        "0/1 nodes are available: 1 Too many pods. There was room for some of these pods. "
        "It went to pods with the same or a higher cost of waiting."
    )


def test_topology_and_labels_of_an_anti_affinity_are_read() -> None:
    """Only the zone of the matching pod is closed, and only to pods that its selector speaks of."""
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    running = manifest("first", nodeName="a1")
    running["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    nodes = [node_manifest(name) for name in ("a1", "a2", "b1")]
    for each, zone in zip(nodes, "aab", strict=True):
        each["metadata"]["labels"]["zone"] = zone
    web, other = manifest("web"), manifest("other")
    web["metadata"]["labels"] = {"app": "web"}
    cluster = read(nodes, [web, other], [running])
    fits = {p.key: list(run_filters(p.pod_class, cluster, p.signature).fits) for p in cluster.pending}
    assert fits == {"default/web": [False, False, True], "default/other": [True, True, True]}
    assert placed(plan_and_check(cluster))["web"] == "b1"


def test_rules_between_pods_are_not_skipped() -> None:
    """A pod with required affinity waits, and is told why, while nobody is there whom it wants to be near."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    near = manifest("near", affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
    nodes = [node_manifest("a"), node_manifest("b")]
    result = plan_and_check(read(nodes, [near]))
    assert result.unplaced[0].reason == "0/2 nodes are available: 2 node(s) didn't match pod affinity rules."
    web = manifest("web", nodeName="b")
    web["metadata"]["labels"] = {"app": "web"}
    assert placed(plan_and_check(read(nodes, [near], [web]))) == {"near": "b"}


def test_pods_of_one_job_keep_their_own_requests() -> None:
    """They shared the first one's; here the large one goes where there is room for it."""
    owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "u", "controller": True}]
    small, large = manifest("job-1", "1"), manifest("job-2", "6")
    for each in (small, large):
        each["metadata"]["ownerReferences"] = owner
    cluster = read([node_manifest("two", "2"), node_manifest("six", "6")], [small, large])
    assert placed(plan_and_check(cluster)) == {"job-1": "two", "job-2": "six"}


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_toleration_counts(count: int) -> None:
    """They were dropped when a pod had two or fewer."""
    taints = [{"key": f"t{i}", "value": "x", "effect": "NoSchedule"} for i in range(count)]
    tainted = {**node_manifest("tainted"), "spec": {"taints": taints}}
    tolerations = [{"key": f"t{i}", "operator": "Exists", "effect": "NoSchedule"} for i in range(count)]
    assert placed(plan_and_check(read([tainted], [manifest("p", tolerations=tolerations)]))) == {"p": "tainted"}
    assert placed(plan_and_check(read([tainted], [manifest("p", tolerations=tolerations[1:])]))) == {}


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "5"}}}]}, "Insufficient cpu"),
        (
            {"initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "3500m"}}}]},
            "Insufficient cpu",
        ),
        ({"overhead": {"cpu": "3500m"}}, "Insufficient cpu"),
        ({"resources": {"requests": {"memory": "17Gi"}}}, "Insufficient memory"),
        (
            {"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]},
            "Insufficient nvidia.com/gpu",
        ),
        (
            {"containers": [{"name": "c", "resources": {"requests": {"hugepages-2Mi": "2Mi"}}}]},
            "Insufficient hugepages-2Mi",
        ),
    ],
)
def test_nothing_that_a_pod_asks_for_is_overlooked(spec: Manifest, reason: str) -> None:
    """Init containers, sidecars, overhead, pod-level requests, extended resources and huge pages."""
    result = plan_and_check(read([node_manifest("only")], [manifest("p", **spec)]))
    assert [left.reason for left in result.unplaced] == [f"0/1 nodes are available: 1 {reason}."]


def test_a_host_port_is_given_once_per_node() -> None:
    """Not to two pods of one class, not to pods of two classes, not where a running pod has it."""
    port = (HostPort("0.0.0.0", "TCP", 80),)  # noqa: S104
    nodes = [node("a"), node("b"), node("taken")]
    pending = [pod("p1", 100, host_ports=port), pod("p2", 100, host_ports=port), pod("p3", 200, host_ports=port)]
    result = plan_and_check(snapshot(nodes, pending, [("taken", amounts(1), port)]))
    assert sorted(placed(result).values()) == ["a", "b"]
    assert len(result.unplaced) == 1


def test_running_pods_are_counted_whoever_placed_them() -> None:
    """poseidon#182: after a restart its own pods were forgotten and their room was given twice."""
    ours = manifest("ours", "3", nodeName="only", schedulerName="thalweg")
    theirs = manifest("theirs", "1", nodeName="only", schedulerName="default-scheduler")
    result = plan_and_check(read([node_manifest("only")], [manifest("p", "1m")], [ours, theirs]))
    assert [left.reason for left in result.unplaced] == ["0/1 nodes are available: 1 Insufficient cpu."]


def test_who_waited_longer_goes_first() -> None:
    """With a constant price nobody aged: here of pods that ask for the same, alike or not, the oldest get the room."""
    pending = [pod(f"p{age}", 1000, created=1000.0 - age) for age in range(10)]
    pending += [
        pod(f"q{age}", 1000, created=999.5 - age, tolerations=(Toleration("x", "Exists"),)) for age in range(10)
    ]
    result = plan_and_check(snapshot([node("only")], pending, now=2000.0))
    assert sorted(placed(result)) == ["p8", "p9", "q8", "q9"]


def test_age_wins_over_newcomers_for_ever() -> None:
    """Whatever arrives each round, a pod that waits gets the next place that it fits: no starvation."""
    old, now = pod("old", 1000, created=100.0), 100.0
    for rounds in range(1, 20):
        now += 10
        arrivals = [pod(f"new{rounds}-{i}", 1000, created=now, node_selector=()) for i in range(8)]
        nodes = [node("only", 1000)] if rounds == 19 else [node("only", 500)]
        result = plan_and_check(snapshot(nodes, [*arrivals, old], now=now))
    assert placed(result) == {"old": "only"}


def test_priority_goes_first() -> None:
    """Before age too: of two pods that ask for the same, the more important one gets the room."""
    pending = [pod("old", 1000, created=1900.0), pod("important", 1000, created=2000.0, priority=1000)]
    result = plan_and_check(snapshot([node("only", 1000)], pending, now=2000.0))
    assert placed(result) == {"important": "only"}
    assert result.unplaced[0].pod.key == "default/old"
    assert "There was room" in result.unplaced[0].reason


def test_an_unimportant_pod_is_not_left_out_where_there_is_room() -> None:
    """However little it costs to leave it."""
    result = plan_and_check(snapshot([node("only")], [pod("p", 1000, priority=-(2**31))]))
    assert placed(result) == {"p": "only"}
