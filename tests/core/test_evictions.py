"""Plans with evictions: legal in the order in which they are carried out, and nobody leaves in vain."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from support.eviction_clusters import clusters
from support.eviction_safety import check_evictions
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import MODELS
from flowcore.costs.network_model import Arc, Network, NetworkCostModel, NetworkView
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.policies import BUILT_IN, Policy, ReschedulingMode, ReschedulingPolicy
from flowcore.planning.round import RoundResult, run_round
from flowcore.planning.round.round import DEFAULT_POLICIES

MOVES = msgspec.structs.replace(BUILT_IN, rescheduling=ReschedulingPolicy(mode=ReschedulingMode.ACT, min_age=0))


@given(clusters(BUILT_IN))
@settings(max_examples=examples(80))
def test_preemption_is_legal_and_needed(drawn: Snapshot) -> None:
    """Filters, priorities, budgets and gangs hold in the order of the plan; every victim is needed."""
    check_evictions(drawn, run_round(drawn), DEFAULT_POLICIES)


@given(clusters(MOVES))
@settings(max_examples=examples(80))
def test_moves_are_legal_and_needed(drawn: Snapshot) -> None:
    """The same with moves, whose room is free before anybody leaves."""
    policies = {MOVES.name: MOVES}
    check_evictions(drawn, run_round(drawn, policies), policies)


class Anywhere(NetworkCostModel):
    """A network that leads to all nodes, at most two pods to each."""

    name = "Anywhere"

    def network(self, view: NetworkView) -> Network:
        arcs = [Arc(pods, "all") for pods in view.pods]
        return Network.of([*arcs, *(Arc("all", each, maximum=2) for each in view.nodes)])


@given(clusters(BUILT_IN), st.lists(st.booleans(), min_size=5, max_size=5))
@settings(max_examples=examples(30))
def test_evictions_beside_pods_that_a_network_placed(drawn: Snapshot, governed: list[bool]) -> None:
    """Pods of a network take part in no eviction, neither as victims' successors nor by losing their places."""
    net = Policy("net", cost=CostPolicy("Anywhere"))
    pending = [
        msgspec.structs.replace(pod, policy="net") if mine else pod
        for pod, mine in zip(drawn.pending, governed, strict=False)
    ]
    crowd, policies = replace(drawn, pending=tuple(pending)), {**DEFAULT_POLICIES, "net": net}
    result = run_round(crowd, policies, {**MODELS, "Anywhere": Anywhere()})
    check_evictions(crowd, result, policies)
    first = run_round(replace(crowd, running=None), policies, {**MODELS, "Anywhere": Anywhere()})

    def by_network(plan: RoundResult) -> dict[str, str]:
        return {each.pod.key: each.node for each in plan.placements if each.pod.policy == "net"}

    assert by_network(result) == by_network(first)
    assert not [each for each in result.placements if each.pod.policy == "net" and each.victims]
