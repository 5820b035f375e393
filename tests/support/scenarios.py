"""Scenarios from manifests, and drawn ones."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from support.draw import Case, Manifest
from support.verdicts import namespaces_of, read_pods

from flowcore.api import Interner, WireNode, to_node
from flowcore.api.policies import parse_policy
from flowcore.costs import MODELS
from flowcore.model.cost_policy import KnownModels
from flowcore.scenario import Scenario

NOW = 1_770_000_000.0


def scenario_of(case: Case, policies: Iterable[Manifest] = ()) -> Scenario:
    """A drawn case, as a dump of it would be read."""
    scenario = Scenario()
    for name, labels in namespaces_of(case).items():
        scenario.cluster.set_namespace(name, labels)
    for manifest in case.nodes:
        scenario.cluster.put_node(to_node(msgspec.convert(manifest, WireNode), Interner()))
    for pod in read_pods([*case.pods, *case.pending]):
        scenario.cluster.put_pod(pod)
    for policy in policies:
        name = policy["metadata"]["name"]
        scenario.policies[name] = parse_policy(name, policy["spec"], KnownModels(tuple(MODELS)))
    return scenario


def scenario_with(*objects: Manifest) -> Scenario:
    """Nodes, pods and policies in one list."""
    pods = [each for each in objects if each["kind"] == "Pod"]
    case = Case(
        nodes=[each for each in objects if each["kind"] == "Node"],
        pods=[each for each in pods if each["spec"].get("nodeName")],
        pending=[each for each in pods if not each["spec"].get("nodeName")],
    )
    return scenario_of(case, [each for each in objects if each["kind"] == "FlowSchedulingPolicy"])
