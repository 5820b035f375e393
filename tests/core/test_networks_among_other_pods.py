"""Networks that limit and price single pods are planned with all others: priorities, evictions and bounds hold."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from support.eviction_clusters import clusters, node, running, snapshot, waiting
from support.eviction_safety import check_evictions
from support.profiles import examples

from flowcore.api.policies import parse_policy
from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import BUILT_IN_MODELS
from flowcore.model.pod_index import PodSignature
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.planning.round import RoundResult, run_round

ZONE = {"name": "zone", "over": {"nodeLabel": "zone"}}


def drawing(network: dict[str, Any]) -> Policy:
    """The built-in policy with a network."""
    drawn = parse_policy("p", {"selects": {"podSelector": {}}, "network": network}, BUILT_IN_MODELS)
    return msgspec.structs.replace(BUILT_IN, network=drawn.network)


def by_zone(most: int, per_node: int, **arc: Any) -> Policy:
    """At most so many pods in a zone and on a node."""
    arcs = [{"to": "Nodes", "maximum": per_node, "cost": [{"upTo": 1, "each": 0}, {"each": 300}]}]
    return drawing(
        {
            "aggregators": [{**ZONE, "arcs": arcs}],
            "arcs": [{"from": {"podSelector": {}}, "to": "zone", "maximum": most, **arc}],
        }
    )


def planned(policy: Policy, *given: Any) -> RoundResult:
    return run_round(snapshot(*given, policy=policy), {policy.name: policy})


def apps(count: int, cpu: int = 1, **fields: Any) -> list[Any]:
    return [waiting(f"w{at}", cpu, signature=PodSignature("default", (("app", "a"),)), **fields) for at in range(count)]


@given(clusters(BUILT_IN), st.integers(0, 4), st.integers(1, 3))
@settings(max_examples=examples(150))
def test_evictions_for_pods_of_a_network_are_legal_and_needed(drawn: Snapshot, most: int, per_node: int) -> None:
    """No zone and no node has more pods than its arcs let in, but where it had more before."""
    policies = {BUILT_IN.name: by_zone(most, per_node)}
    result = run_round(drawn, policies)
    check_evictions(drawn, result, policies)
    assert drawn.running is not None
    before, after = Counter[str](), Counter[str]()
    for pod in drawn.running.pods:
        before.update((pod.node, pod.node[-1]))
    after.update(before)
    for eviction in result.evictions:
        after.subtract((eviction.pod.node, eviction.pod.node[-1]))
        if eviction.to:
            after.update((eviction.to, eviction.to[-1]))
    for placement in result.placements:
        after.update((placement.node, placement.node[-1]))
    for end, count in after.items():
        assert count <= max(most if len(end) == 1 else per_node, before[end]), (end, count, before[end])
    assert result.lower_bound <= result.cost


@given(clusters(BUILT_IN), st.integers(0, 2), st.integers(0, 2))
@settings(max_examples=examples(150))
def test_evictions_for_pods_that_have_a_choice_are_legal_and_needed(drawn: Snapshot, cheap: int, dear: int) -> None:
    """No node has more pods than both arcs to it let in, but where it had more before; each pod is placed or left."""
    ways = [{"from": {"podSelector": {}}, "to": "Nodes", "maximum": most, "cost": most} for most in (cheap, dear)]
    policies = {BUILT_IN.name: drawing({"arcs": ways})}
    result = run_round(drawn, policies)
    check_evictions(drawn, result, policies)
    assert drawn.running is not None
    before = Counter(pod.node for pod in drawn.running.pods)
    after = before + Counter(placement.node for placement in result.placements)
    for eviction in result.evictions:
        after.subtract([eviction.pod.node])
    for end, count in after.items():
        assert count <= max(cheap + dear, before[end]), (end, count, before[end])
    keys = [*(each.pod.key for each in result.placements), *(each.pod.key for each in result.unplaced)]
    assert sorted(keys) == sorted(pod.key for pod in drawn.pending)
    assert result.lower_bound <= result.cost


def test_running_pods_leave_for_an_urgent_pod_where_its_network_leads() -> None:
    """On the node in zone a; the one in zone b has nobody to spare for it, though it would be cheaper."""
    policy = drawing({"arcs": [{"from": {"podSelector": {}}, "to": "n1a"}]})
    pods = [running("low", "n1a", 4), running("lower", "n2b", 4, priority=-5)]
    result = planned(policy, [node("n1a"), node("n2b")], pods, apps(1, 4, priority=10))
    assert [each.node for each in result.placements] == ["n1a"]
    assert [each.pod.key for each in result.evictions] == ["default/low"]


def test_nobody_leaves_for_a_pod_that_an_arc_keeps_out() -> None:
    """The zone has two pods already, which are as urgent as the one that waits; another one might leave."""
    urgent = {"priority": 10, "labels": (("app", "a"),)}
    pods = [*(running(f"r{at}", "n1a", 1, **urgent) for at in range(2)), running("low", "n1a", 2)]
    policy = by_zone(2, 4, **{"from": {"podSelector": {"matchLabels": {"app": "a"}}}})
    result = planned(policy, [node("n1a", 8)], pods, apps(1, 2, priority=10))
    assert not result.evictions
    reason = "1 node(s) are full by arcs[0] to zone of the network of policy (built-in) (at most 2 per zone)"
    assert reason in result.unplaced[0].reason


def test_urgent_pods_of_others_come_first_in_the_same_round() -> None:
    pods = [*apps(2, 2), waiting("other", 4, priority=5)]
    pods[-1] = msgspec.structs.replace(pods[-1], policy="other")
    policy = by_zone(9, 9)
    given = snapshot([node("n1a")], [], pods)
    result = run_round(given, {policy.name: policy, "other": msgspec.structs.replace(BUILT_IN, name="other")})
    assert [each.pod.key for each in result.placements] == ["default/other"]


def test_pods_spread_where_units_cost_more_and_more_and_wait_where_they_cost_too_much() -> None:
    nodes = [node("n1a"), node("n2b")]
    rising = [{"upTo": 1, "each": 0}, {"upTo": 2, "each": 700}, {"each": 10**9}]
    result = planned(by_zone(9, 9, cost=rising), nodes, [], apps(6))
    assert Counter(each.node for each in result.placements) == {"n1a": 2, "n2b": 2}
    assert sum(each.price for each in result.placements) == 2 * 700 + 2 * 300
    assert {each.code for each in result.unplaced} == {"CheaperToWait"}
