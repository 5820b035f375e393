"""Questions about pods that claim devices: headroom, what-if and why know claims, slices and what comes free."""

from typing import Any

from support.device_clusters import GPU, Manifest, allocated, claim, slice_of
from support.scenario_state import NOW, manifest_node, manifest_pod, scenario_of, state_of

from flowcore.questions.diagnosis.why import WhyQuery, answer_why
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.alternatives.headroom import HeadroomQuery, answer_headroom
from flowcore.questions.scenario.alternatives.what_if import WhatIfQuery, answer_what_if
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.hypothetical.changes import AddNodes, Drain

CONTEXT = AnswerContext(now=NOW)
API = {"apiVersion": "resource.k8s.io/v1"}


def claiming(name: str, node: str = "", count: int = 1, *devices: str, **spec: Any) -> list[Manifest]:
    """A pod with a claim of a template, and the claim; with devices of its node once it runs."""
    pod = manifest_pod(name, node)
    pod["spec"] |= {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}], **spec}
    pod["status"] = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]}
    made = claim(f"{name}-gpu", count, owner=name)
    if node:
        made = allocated(made, node, devices[0])
        results = made["status"]["allocation"]["devices"]["results"]
        results += [dict(results[0], device=device) for device in devices[1:]]
        made["status"]["reservedFor"] = [{"resource": "pods", "name": name, "uid": name}]
    return [pod, {**API, "kind": "ResourceClaim", **made}]


def cluster(gpus: dict[str, int], *objects: Manifest) -> Scenario:
    """Nodes with so many GPUs."""
    slices = [{**API, "kind": "ResourceSlice", **slice_of(name, count)} for name, count in gpus.items()]
    nodes = [manifest_node(name, "z", cpu="16") for name in gpus]
    return scenario_of([*nodes, {**API, "kind": "DeviceClass", **GPU}, *slices, *objects])


def test_headroom_counts_devices() -> None:
    """Of pods like one that runs, and like one that waits: so many find devices beside those that are taken."""
    running, waits = claiming("runs", "a", 1, "gpu-0"), claiming("waits", count=2)
    scenario = cluster({"a": 4, "b": 3, "c": 0}, *running, *waits)
    before = state_of(scenario)
    answer = answer_headroom(scenario, HeadroomQuery(like="default/runs", scale_ups=0), CONTEXT)
    # Six are free, of which the waiting pod gets two.
    assert answer.fits == 4
    assert sum(answer.nodes.values()) == 4
    assert "c" not in answer.nodes
    assert "cannot allocate all claims" in answer.reason
    assert answer_headroom(scenario, HeadroomQuery(like="default/waits", scale_ups=0), CONTEXT).fits == 1
    assert state_of(scenario) == before


def test_headroom_of_pods_whose_devices_are_no_numbers() -> None:
    """Each takes all that a node has."""
    takes_all = claiming("waits")
    takes_all[1]["spec"]["devices"]["requests"][0]["exactly"] = {"deviceClassName": "gpu", "allocationMode": "All"}
    answer = answer_headroom(
        cluster({"a": 4, "b": 3, "c": 2}, *takes_all), HeadroomQuery(like="default/waits", scale_ups=0), CONTEXT
    )
    assert answer.fits == 2


def test_a_drained_pod_takes_its_devices_along() -> None:
    """Its claim is free to be allocated on another node."""
    scenario = cluster({"a": 1, "b": 1}, *claiming("runs", "a", 1, "gpu-0"))
    before = state_of(scenario)
    answer = answer_what_if(scenario, WhatIfQuery([Drain("a")]), CONTEXT)
    assert not answer.waiting
    assert state_of(scenario) == before


def test_a_new_node_has_the_devices_of_the_node_that_it_is_like() -> None:
    """So a pod that waits for devices is placed there."""
    scenario = cluster({"a": 1}, *claiming("runs", "a", 1, "gpu-0"), *claiming("waits"))
    answer = answer_what_if(scenario, WhatIfQuery([AddNodes(1, "a")]), CONTEXT)
    assert answer.placed == ["default/waits"]


def test_new_nodes_are_tried_that_have_devices() -> None:
    """Of two shapes that differ in their devices alone, the one with devices; so many as the pods need."""
    waits = [each for number in range(3) for each in claiming(f"waits-{number}", count=2)]
    scenario = cluster({"a": 0, "b": 4}, *claiming("runs", "b", 4, *(f"gpu-{number}" for number in range(4))), *waits)
    answer = answer_headroom(scenario, HeadroomQuery(), CONTEXT)
    assert [(each.like, each.count, each.pods) for each in answer.scale_ups] == [("b", 2, 3)]


def test_why_no_pod_leaves_for_devices() -> None:
    """The pod that has them is as important."""
    scenario = cluster({"a": 1}, *claiming("runs", "a", 1, "gpu-0"), *claiming("waits"))
    answer = answer_why(scenario, WhyQuery("default/waits"), CONTEXT)
    assert "cannot allocate all claims" in answer.text
    assert "No running pod leaves for it: no running pod has a lower priority." in answer.evidence
