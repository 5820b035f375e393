"""Networks that policies draw, compiled into rules of their pods.

A way of a pod to a node passes the aggregators of that node's own values. What its arcs limit together, or price by how
many units they have, is a limit or a price in a domain, and counts pods that run. So these pods are planned with all
others, and running pods leave for them. Where a pod has several ways to a node that pass different limits, it depends
on other pods which one it takes: it has a choice. Such a pod is there as several pods, its twins (``twins``), and
gangs of such pods take ways of one class (``decided_ways``). Running pods that have a choice are numbers beside the
arcs (``with_running``). What no rules of pods say is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import CostModel
from flowcore.costs.flat_potential import NoCosts
from flowcore.model.cost_policy import CostPolicy, CostWeights
from flowcore.model.default_spread import NO_SPREAD
from flowcore.model.networks import NetworkWay
from flowcore.model.policies import Policy
from flowcore.model.selectors import NodeSelectorTerm
from flowcore.planning.drawn_networks.model_networks import with_networks_of_models
from flowcore.planning.drawn_networks.network_rules import rules_of, with_running
from flowcore.planning.drawn_networks.ways.drawing import Drawing, NetworkRefused, NetworkStart
from flowcore.planning.problem.passes.round_pass import Pass
from flowcore.planning.problem.problem import Problem

_NO_WEIGHTS = CostWeights(*[0] * len(CostWeights.__struct_fields__))


class CompileNetworks(Pass):
    """Gives the policies that draw a network its rules, in place of what their pods cost otherwise."""

    def __init__(self, closed: Mapping[str, Mapping[str, tuple[NodeSelectorTerm, ...]]] | None = None) -> None:
        """``closed``: by policy and arc, nodes in whose domains an arc takes no pod."""
        self._closed = closed or {}

    def apply(self, problem: Problem) -> Problem:
        """The same pods under these policies."""
        problem.charge(())
        compiled = with_network_rules(problem.policies, problem.snapshot, problem.models)
        for name, closed in self._closed.items():
            rules = compiled[name].network_rules
            assert rules is not None  # noqa: S101 - it was compiled before
            arcs = tuple(msgspec.structs.replace(arc, closed=closed.get(arc.name, ())) for arc in rules.arcs)
            rules = msgspec.structs.replace(rules, arcs=arcs)
            compiled[name] = msgspec.structs.replace(compiled[name], network_rules=rules)
        problem.charge([pod for pod in problem.snapshot.pending if pod.policy in compiled])
        if not compiled:
            return problem
        return problem.with_policies(compiled, {NoCosts.name: NoCosts()})


def with_network_rules(
    policies: Mapping[str, Policy], snapshot: Snapshot, models: Mapping[str, CostModel]
) -> dict[str, Policy]:
    """The policies that draw a network, or whose model does, by name, with its rules."""
    drawn = with_networks_of_models(policies, models, snapshot).values()
    compiled = (
        msgspec.structs.replace(each, network_rules=rules_of(each, snapshot), cost=_cost(each, snapshot))
        for each in drawn
        if each.network is not None
    )
    return {each.name: with_running(each, snapshot) for each in compiled}


def ways_of(policy: Policy, snapshot: Snapshot) -> list[tuple[NetworkStart, list[NetworkWay]]]:
    """The ways of a policy's network by their starts; none where it is refused."""
    try:
        return Drawing(policy, snapshot.table).ways()
    except NetworkRefused:
        return []


def _cost(policy: Policy, snapshot: Snapshot) -> CostPolicy:
    """What a policy's pods cost beside their ways: nothing, or all that it says where the drawing says so."""
    before = policy.cost
    if Drawing(policy, snapshot.table).has_model:
        return before
    return CostPolicy(NoCosts.name, _NO_WEIGHTS, before.preferences, before.utilisation, default_spread=NO_SPREAD)
