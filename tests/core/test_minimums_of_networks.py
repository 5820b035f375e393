"""Minimums, none or enough, and pods that go together, as networks draw them, planned with all other pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from support import eviction_clusters as clusters
from support.model import GI, node, pod, snapshot

from flowcore.api.policies import parse_policy
from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.costs import BUILT_IN_MODELS
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.round import RoundResult, run_round

EVERYBODY: Mapping[str, Any] = {"podSelector": {}}
RACK = {"name": "rack", "over": {"nodeLabel": "rack"}, "arcs": [{"to": "Nodes"}]}


def drawing(network: dict[str, Any]) -> Policy:
    own = {"podSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["other"]}]}}
    return parse_policy("p", {"selects": own, "network": network}, BUILT_IN_MODELS)


def to_racks(**arc: Any) -> Policy:
    return drawing({"aggregators": [RACK], "arcs": [{"from": EVERYBODY, "to": "rack", **arc}]})


def racks(count: int, nodes: int, cpu: int = 4000) -> list[Node]:
    """So many nodes in each of so many racks."""
    names = [(f"n{rack}-{at}", f"r{rack}") for rack in range(count) for at in range(nodes)]
    return [node(name, cpu, 64 * GI, labels=(("kubernetes.io/hostname", name), ("rack", rack))) for name, rack in names]


def apps(count: int, cpu: int = 1000, policy: str = "p", **fields: Any) -> list[PendingPod]:
    signature = PodSignature("default", (("app", fields.pop("app", "a" if policy == "p" else "other")),))
    first = fields.pop("first", 0)
    return [pod(f"{policy}{first + at}", cpu, GI, policy=policy, kind=signature, **fields) for at in range(count)]


def planned(
    policy: Policy, nodes: Sequence[Node], pods: Sequence[PendingPod], runs: PodIndex | None = None
) -> RoundResult:
    index = PodIndex.of(()) if runs is None else runs
    return run_round(snapshot(nodes, pods, (), pod_index=index), {policy.name: policy, BUILT_IN.name: BUILT_IN})


def by_rack(result: RoundResult) -> Counter[str]:
    return Counter(each.node.split("-")[0] for each in result.placements)


def test_each_rack_gets_its_minimum() -> None:
    """Though the empty nodes of the first rack are as good."""
    result = planned(to_racks(minimum=40), racks(3, 20, 8000), apps(130))
    assert sum(by_rack(result).values()) == 130
    assert min(by_rack(result).values()) >= 40


def test_pods_that_run_count() -> None:
    runs = PodIndex.of(("n0-0", PodSignature("default", (("app", "a"),))) for _ in range(2))
    assert by_rack(planned(to_racks(minimum=3), racks(2, 2), apps(4), runs)) == {"n0": 1, "n1": 3}


def test_a_minimum_that_no_room_can_meet_keeps_the_policys_pods_out_and_no_others() -> None:
    result = planned(to_racks(minimum=5), racks(2, 1), [*apps(12), *apps(3, policy=BUILT_IN.name)])
    assert {each.pod.policy for each in result.placements} == {BUILT_IN.name}
    assert len(result.placements) == 3
    (reason,) = {each.reason for each in result.unplaced}
    assert reason == (
        "The network of policy p is refused: arcs[0] to rack needs at least 5 pods for rack r0, and gets 4."
    )
    assert {each.code for each in result.unplaced} == {"NetworkRefused"}
    assert result.contradictions


def test_pods_that_come_before_leave_too_little_for_a_minimum_and_others_get_the_room() -> None:
    """Urgent pods of another policy take half of the rack; what the network may not have goes to the last pod."""
    urgent = apps(2, 2000, BUILT_IN.name, priority=1000)
    last = apps(1, 3000, BUILT_IN.name, priority=-1000, first=9)
    result = planned(to_racks(minimum=6), racks(1, 2), [*urgent, *apps(6), *last])
    assert {each.pod.key for each in result.placements} == {each.key for each in [*urgent, *last]}
    assert {each.code for each in result.unplaced} == {"NetworkRefused"}


def test_a_rack_gets_none_or_enough() -> None:
    result = planned(to_racks(minimum=8, wholeOrNone=True), racks(3, 2), apps(20))
    assert by_rack(result) == {"n0": 8, "n1": 8} or sorted(by_rack(result).values()) == [8, 8]
    few = planned(to_racks(minimum=8, wholeOrNone=True), racks(3, 2), apps(7))
    assert not few.placements
    arc = "Arcs[0] to rack of the network of policy p"
    assert {each.reason for each in few.unplaced} == {f"{arc} takes 8 pods or none, and fewer wait or have room there."}


def test_none_or_enough_of_several_kinds() -> None:
    """Three pods of each of two sizes: a rack has room for both or for neither."""
    pods = [*apps(3, 1000), *apps(3, 1500, app="b", first=3)]
    result = planned(to_racks(minimum=6, wholeOrNone=True), racks(2, 2), pods)
    assert sorted(by_rack(result).values()) == [6]


def test_pairs_share_a_node_where_a_network_is_large() -> None:
    """Of each kind with an odd number one pod waits, unless another kind has one too."""
    network = {
        "aggregators": [{"name": "pair", "arcs": [{"to": "Nodes", "gain": 2}]}],
        "arcs": [{"from": EVERYBODY, "to": "pair"}],
    }
    pods = [each for app in range(25) for each in apps(3, 800 + app, app=f"a{app}", first=3 * app)]
    result = planned(drawing(network), racks(50, 5), pods)
    assert set(Counter(each.node for each in result.placements).values()) <= {2, 4}
    assert len(result.placements) == 74
    (left,) = result.unplaced
    assert "2 pods with" in left.reason
    assert "only 1 of them" in left.reason
    assert left.code == "GangIncomplete"


@pytest.mark.parametrize(("count", "placed", "evicted"), [(3, 0, 0), (4, 4, 3), (5, 4, 3)])
def test_nobody_leaves_for_fewer_pods_than_are_worth_anything(count: int, placed: int, evicted: int) -> None:
    """A node of 4 CPUs has room for one pod; three that run are less important. The arc takes four pods or none."""
    policy = msgspec.structs.replace(
        BUILT_IN,
        network=drawing({"arcs": [{"from": EVERYBODY, "to": "Nodes", "minimum": 4, "wholeOrNone": True}]}).network,
    )
    signature = PodSignature("default", (("app", "a"),))
    pods = [clusters.waiting(f"w{at}", 1, priority=10, signature=signature) for at in range(count)]
    runs = [clusters.running(f"r{at}", "n1a", 1, labels=(("app", "other"),)) for at in range(3)]
    network = msgspec.structs.replace(
        policy, selects=msgspec.structs.replace(policy.selects, pods=LabelSelector((Requirement("app", "In", ("a",)),)))
    )
    result = run_round(clusters.snapshot([clusters.node("n1a", 4)], runs, pods), {network.name: network})
    assert (len(result.placements), len(result.evictions)) == (placed, evicted)


def test_a_minimum_holds_whoever_decides_about_other_pods() -> None:
    """A network that is solved as a whole takes the room first; what is left is too little for the minimum."""
    ways = [{"from": EVERYBODY, "to": "all"}, {"from": EVERYBODY, "to": "all", "maximum": 0}]
    first = {"aggregators": [{"name": "all", "arcs": [{"to": "Nodes"}]}], "arcs": [{**ways[0], "maximum": 99}, ways[1]]}
    urgent = parse_policy("q", {"selects": {"podSelector": {}}, "network": first}, BUILT_IN_MODELS)
    own = {
        "arcs": [
            {"from": {"podSelector": {"matchLabels": {"app": "a"}}}, "to": "Nodes", "minimum": 1},
            {"from": {"podSelector": {"matchLabels": {"app": "b"}}}, "to": "Nodes"},
        ]
    }
    pods = [*apps(4, 1500, "q", priority=10), *apps(2, 2000), *apps(2, 500, app="b", first=2)]
    state = snapshot(racks(2, 1), pods, (), pod_index=PodIndex.of(()))
    result = run_round(state, {"p": drawing(own), "q": urgent})
    assert {each.pod.policy for each in result.placements} == {"q"}
    assert {each.code for each in result.unplaced} == {"NetworkRefused"}
