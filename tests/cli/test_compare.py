"""``thalweg plan --compare``: the plan beside the same pods one by one."""

import json
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli import Manifest, node, plan_of, pod, thalweg
from support.profiles import examples

from flowcore.api import Interner, WireNode, WirePod, to_node, to_pod
from flowcore.cluster.cluster import Cluster
from flowcore.questions.scenario import Scenario, plan_scenario
from flowcore.questions.scenario.alternatives.comparison import compare_one_by_one

ZONE = "topology.kubernetes.io/zone"


def gang(name: str, count: int, cpu: str, first: int, **annotations: str) -> list[Manifest]:
    """Pods of a gang that needs all of them; they come one a second."""
    terms = {"scheduling.thalweg/gang": name, "scheduling.thalweg/gang-min-member": str(count), **annotations}
    return [
        pod(f"{name}-{number}", cpu, metadata={
            "name": f"{name}-{number}",
            "namespace": "default",
            "creationTimestamp": f"2026-01-01T00:00:{first + 10 * number:02}Z",
            "annotations": terms,
        })
        for number in range(count)
    ]  # fmt: skip


def zoned(name: str, zone: str, cpu: str = "4") -> Manifest:
    """A node of a zone."""
    made = node(name, cpu)
    made["metadata"]["labels"][ZONE] = zone
    return made


#: Three gangs of three that arrive in turns, and room for two.
GANGS = [node("a"), node("b"), node("c"), *(each for at in range(3) for each in gang(f"g{at}", 3, "2", at))]


def test_gangs_that_arrive_in_turns() -> None:
    """One by one all three start and none is whole; the plan has two of them."""
    comparison = plan_of(*GANGS, arguments=("--compare",))["comparison"]
    ours, theirs = comparison["thalweg"], comparison["oneByOne"]
    assert comparison["gangs"] == 3
    assert (ours["placed"], ours["waiting"], ours["wholeGangs"], ours["podsOfIncompleteGangs"]) == (6, 3, 2, 0)
    assert (theirs["placed"], theirs["waiting"], theirs["wholeGangs"], theirs["podsOfIncompleteGangs"]) == (6, 3, 0, 6)
    assert comparison["allocatable"] == {"cpu": 12_000, "memory": 3 * 16 * 2**30}
    assert (comparison["usedBefore"]["cpu"], ours["used"]["cpu"], theirs["used"]["cpu"]) == (0, 12_000, 12_000)
    assert len(comparison["onlyThalweg"]) == len(comparison["onlyOneByOne"]) == 2


def test_the_table() -> None:
    """The same figures for people, in a pipe without padding, and the closing line of every plan."""
    done = thalweg("plan", "-f", "-", "--compare", stdin=json.dumps({"kind": "List", "items": GANGS}))
    lines = done.stdout.splitlines()
    assert lines[0].startswith("3 nodes; 9 pods wait: 6 get a node, 3 have none")
    assert lines[4].split() == ["NOW", "THALWEG", "ONE", "BY", "ONE"]
    assert any(line.split() == ["whole", "gangs,", "of", "3", "2", "0"] for line in lines)
    assert any(line.split() == ["cpu,", "of", "12", "cores", "0.0", "%", "100.0", "%", "100.0", "%"] for line in lines)
    assert "Placed by Thalweg only: 2 pods (default/" in done.stdout
    held = next(at for at, line in enumerate(lines) if line.startswith("cpu, ")) + 1
    assert lines[held].split() == ["of", "these", "held", "by", "incomplete", "gangs", "0", "12", "cores"]
    assert lines[-2] == "Gained: 6 pods can run, not 0; 2 gangs whole, not 0."
    assert [line for line in lines if line != line.rstrip()] == []


def test_a_gang_of_one_zone_is_whole_only_in_one() -> None:
    """One by one its pods have nodes in two zones: that is not what it asked for."""
    pods = gang("ring", 2, "3", 0, **{"scheduling.thalweg/gang-topology": ZONE})
    nodes = [zoned("a1", "a"), zoned("b1", "b", "6"), zoned("a2", "a")]
    comparison = plan_of(*nodes, *pods, arguments=("--compare",))["comparison"]
    assert comparison["thalweg"]["wholeGangs"] == 1
    assert comparison["oneByOne"]["placed"] == 2
    assert (comparison["oneByOne"]["wholeGangs"], comparison["oneByOne"]["podsOfIncompleteGangs"]) == (0, 2)


def test_both_ways_count_what_no_plan_may_place() -> None:
    """The table's waiting pods are those of the line above it, a gated pod among them."""
    gated = pod("gated", schedulingGates=[{"name": "example.com/wait"}])
    answer = plan_of(node("a"), pod("p"), gated, arguments=("--compare",))
    comparison = answer["comparison"]
    assert comparison["thalweg"]["waiting"] == comparison["oneByOne"]["waiting"] == len(answer["pending"]) == 1


def test_resources_that_nobody_requests_have_no_row() -> None:
    """A node's disks and pages that no pod asks for say nothing of either way."""
    disks = node("a")
    disks["status"]["allocatable"]["ephemeral-storage"] = "95Gi"
    dump = json.dumps({"kind": "List", "items": [disks, pod("p")]})
    done = thalweg("plan", "-f", "-", "--compare", stdin=dump)
    assert "cpu, of 4 cores" in done.stdout
    assert "ephemeral-storage" not in done.stdout


def test_evictions_are_counted_apart() -> None:
    """A pod that gets a node once others have left is not one that has room now."""
    running = pod("low", "4", nodeName="a", priority=0, schedulerName="thalweg", status={"phase": "Running"})
    running["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}
    ]
    answer = plan_of(node("a"), running, pod("urgent", "4", priority=1000), arguments=("--compare",))
    ours, theirs = answer["comparison"]["thalweg"], answer["comparison"]["oneByOne"]
    assert answer["evicted"].keys() == {"default/low"}
    assert (ours["placed"], ours["placedAfterEvictions"], ours["waiting"]) == (0, 1, 0)
    assert (theirs["placed"], theirs["placedAfterEvictions"], theirs["waiting"]) == (0, 0, 1)


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_the_figures_add_up(data: Any) -> None:
    """Recounted from the plan for drawn gangs: every pod counts once, and Thalweg starts no gang that it cannot end."""
    scenario = Scenario(Cluster())
    for at in range(data.draw(st.integers(1, 4), "nodes")):
        made = zoned(f"n{at}", data.draw(st.sampled_from("ab"), "zone"), str(data.draw(st.integers(1, 6), "cpu")))
        scenario.cluster.put_node(to_node(msgspec.convert(made, WireNode), Interner()))
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5), "gangs")
    topology = data.draw(st.sampled_from([{}, {"scheduling.thalweg/gang-topology": ZONE}]), "topology")
    for at, size in enumerate(sizes):
        for made in gang(f"g{at}", size, str(data.draw(st.integers(1, 4), "asks")), at, **topology):
            scenario.cluster.put_pod(to_pod(msgspec.convert(made, WirePod), Interner()))
    plan = plan_scenario(scenario, 0.0)
    found = compare_one_by_one(scenario, plan)
    assert found.gangs == len(sizes)
    assert found.thalweg.pods_of_incomplete_gangs == 0
    placed = Counter(placement.pod.gangs[0] for placement in plan.result.placements)
    assert found.thalweg.whole_gangs == len(placed)
    for way in (found.thalweg, found.one_by_one):
        assert way.placed + way.placed_after_evictions + way.waiting == sum(sizes)
        assert all(way.used[name] <= found.allocatable.get(name, 0) for name in way.used)
    assert len(found.only_thalweg) - len(found.only_one_by_one) == found.thalweg.placed - found.one_by_one.placed


@pytest.mark.parametrize("arguments", [(), ("--compare",)])
def test_only_by_request(arguments: tuple[str, ...]) -> None:
    """Nobody pays for what they did not ask for."""
    assert ("comparison" in plan_of(node("a"), pod("p"), arguments=arguments)) == bool(arguments)


def test_more_lost_than_placed_is_no_gain() -> None:
    """Two that run lose their node for one that is placed: that is said net, and so is what one by one leaves out."""
    low = [pod(name, "2", nodeName="a", priority=0, status={"phase": "Running"}) for name in ("low-1", "low-2")]
    objects = [node("a"), *low, pod("urgent", "4", priority=1000)]
    lines = thalweg("plan", "-f", "-", "--compare", stdin=json.dumps({"kind": "List", "items": objects})).stdout
    assert "2 running pods would leave, each without a new node" in lines.splitlines()
    assert "One by one evicts nobody here. kube-scheduler preempts" in lines
    last = "In short: 1 pod can run, not 0; 2 running pods evicted without a new node: in all 1 pod fewer runs."
    assert lines.splitlines()[-2] == last
