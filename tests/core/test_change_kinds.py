"""Every kind of hypothetical change, in a cluster that has something of everything that plans read."""

from typing import Any, get_args

import msgspec
import pytest
from support.device_clusters import GPU, allocated, claim, slice_of
from support.scenario_state import NOW, manifest_node, manifest_pod, scenario_of, state_of

from flowcore.model.errors import ModelError
from flowcore.model.usage import UsageSample
from flowcore.questions.scenario import Change, Scenario, applied, plan_scenario
from flowcore.questions.scenario.alternatives.what_if import WhatIfAnswer, WhatIfQuery, answer_what_if
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.hypothetical.changes import (
    AddNodes,
    Cordon,
    CountDevices,
    Drain,
    DropDeviceConstraint,
    DropNodeSelector,
    DropPodRules,
    EvictPods,
    FailDomain,
    HonorTaints,
    MovePod,
    PutObjects,
    PutPolicy,
    RaiseCap,
    RaiseQueueLimit,
    RemoveNode,
    RemoveTaint,
    ReplaceDeviceSelector,
    ReplaceNodeLabel,
    Request,
    SetPriority,
    Tolerate,
    Uncordon,
)

CONTEXT = AnswerContext(now=NOW)
_ZONE = "topology.kubernetes.io/zone"


def _policy(most: int = 1) -> dict[str, Any]:
    cap = {"pods": {"matchLabels": {"kind": "capped"}}, "topologyKey": _ZONE, "maxPerDomain": most}
    spec = {
        "selects": {"podSelector": {}},
        "constraints": [{"name": "zones", "conflict": cap}],
        "cost": {"utilisation": "Measured"},
    }
    return {"kind": "FlowSchedulingPolicy", "metadata": {"name": "all"}, "spec": spec}


def _waiting(name: str, **spec: Any) -> dict[str, Any]:
    pod = manifest_pod(name, cpu="1", labels={"kind": name})
    return {**pod, "spec": pod["spec"] | {"schedulerName": "thalweg", **spec}}


_DEVICES = {"apiVersion": "resource.k8s.io/v1"}
_NO_DEVICE = "device.driver == 'other'"


def _claiming() -> list[dict[str, Any]]:
    """Three GPUs without any attribute, and pods that claim none, more, or two that have one in common; one has one."""
    selective = claim("selective", owner="selective", selectors=[{"cel": {"expression": _NO_DEVICE}}])
    many, linked = claim("many", 9, owner="many"), claim("linked", 2, owner="linked")
    linked["spec"]["devices"]["constraints"] = [{"requests": ["r"], "matchAttribute": "gpu.example.com/link"}]
    served = allocated(claim("served", owner="served"), "a", "gpu-2")
    pods = [
        _waiting(name, resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "t"}])
        for name in ("selective", "many", "linked", "served")
    ]
    for pod in pods:
        name = pod["metadata"]["name"]
        pod["status"] = {"resourceClaimStatuses": [{"name": "gpus", "resourceClaimName": name}]}
    claims = [{"kind": "ResourceClaim", **_DEVICES, **each} for each in (selective, many, linked, served)]
    return [
        {"kind": "DeviceClass", **_DEVICES, **GPU},
        {"kind": "ResourceSlice", **_DEVICES, **slice_of("a", 3)},
        *claims,
        *pods,
    ]


def everything() -> Scenario:
    """Three nodes; pods that wait, each for a reason of its own that one kind of change takes away."""
    tainted, cordoned = manifest_node("tainted", "z2"), manifest_node("cordoned", "z3")
    tainted["spec"] = {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    cordoned["spec"] = {"unschedulable": True, "taints": [taint]}
    far = {"labelSelector": {"matchLabels": {"app": "runs"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [far]}}
    even = {"maxSkew": 1, "topologyKey": _ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {
        "matchExpressions": [{"key": "kind", "operator": "In", "values": ["capped", "spread"]}]}}  # fmt: skip
    running = manifest_pod("runs", "a", labels={"kind": "capped", "app": "runs"})
    selects = {"podSelector": {"matchLabels": {"q": "team"}}}
    queue = {"metadata": {"name": "team"}, "spec": {"limit": {"cpu": "1"}, "selects": selects}}
    queued = manifest_pod("queued", cpu="2", labels={"q": "team"})
    queued["spec"]["schedulerName"] = "thalweg"
    zones = {"zones": [{"name": "node-0", "type": "Node", "resources": [{"name": "cpu", "available": "4"}]}]}
    scenario = scenario_of(
        [
            {"kind": "Namespace", "metadata": {"name": "default"}},
            manifest_node("a", "z1"),
            tainted,
            cordoned,
            running,
            _waiting("capped"),
            _waiting("labelled", nodeSelector={"disk": "ssd"}),
            _waiting("apart", affinity=apart),
            _waiting("spread", topologySpreadConstraints=[even]),
            _waiting("large", containers=[{"name": "c", "resources": {"requests": {"cpu": "40"}}}]),
            _waiting("plain"),
            queued,
            *_claiming(),
            {"kind": "FlowQueue", "apiVersion": "scheduling.thalweg/v1alpha1", **queue},
            {"kind": "CSINode", "apiVersion": "storage.k8s.io/v1", "metadata": {"name": "a"}, "spec": {"drivers": []}},
            {
                "kind": "NodeResourceTopology",
                "apiVersion": "topology.node.k8s.io/v1alpha2",
                "metadata": {"name": "a"},
                **zones,
            },
            _policy() | {"apiVersion": "scheduling.thalweg/v1alpha1"},
        ]
    )
    scenario.node_samples["a"] = UsageSample(NOW, 30.0, 500, 2**30)
    return scenario


#: One of each kind, and a pod that has a node with it and none without; "": whoever.
KINDS: tuple[tuple[Change, str], ...] = (
    (Cordon("a"), ""),
    (Uncordon("cordoned"), "default/apart"),
    (Drain("a"), ""),
    (RemoveNode("a"), ""),
    (FailDomain("zone", "z1"), ""),
    (AddNodes(2, "cordoned"), "default/apart"),
    (SetPriority("default/plain", 1000), ""),
    (PutPolicy(_policy(5)), "default/capped"),
    (PutObjects([manifest_node("new", "z9")]), "default/apart"),
    (EvictPods(["default/runs"]), ""),
    (MovePod("default/large", "a"), "default/large"),
    (RemoveTaint("tainted", "gpu"), "default/apart"),
    (Tolerate("default/apart", "gpu", "yes"), "default/apart"),
    (DropNodeSelector("default/labelled", "disk"), "default/labelled"),
    (ReplaceNodeLabel("default/labelled", "disk", "ssd", _ZONE, "z1"), "default/labelled"),
    (Request("default/large", "cpu", 500), "default/large"),
    (DropPodRules("default/apart", "antiAffinity"), "default/apart"),
    (HonorTaints("default/spread", _ZONE), "default/spread"),
    (ReplaceDeviceSelector("default/selective", "gpus", "r", _NO_DEVICE), "default/selective"),
    (DropDeviceConstraint("default/linked", "gpus", "gpu.example.com/link"), "default/linked"),
    (CountDevices("default/many", "gpus", "r", 1), "default/many"),
    (RaiseCap("all", "zones", 2), "default/capped"),
    (RaiseQueueLimit("team", "cpu", 8000), "default/queued"),
)


def test_every_kind_is_here() -> None:
    """A new kind of change needs an example."""
    assert {type(change) for change, _ in KINDS} == set(get_args(Change))


@pytest.mark.parametrize(("change", "helped"), KINDS, ids=[type(change).__name__ for change, _ in KINDS])
def test_each_kind(change: Change, helped: str) -> None:
    """It does what it says, comes through JSON as it was, and leaves nothing behind."""
    scenario = everything()
    before = state_of(scenario)
    query = WhatIfQuery([change])
    assert msgspec.json.decode(msgspec.json.encode(query), type=WhatIfQuery) == query
    answer = answer_what_if(scenario, query, CONTEXT)
    assert msgspec.json.decode(msgspec.json.encode(answer), type=WhatIfAnswer) == answer
    assert state_of(scenario) == before
    if helped:
        assert helped in answer.placed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (SetPriority("default/plain", 2**40), "priority: "),
        (Request("default/plain", "cpu", -1), "amount: "),
        (Request("default/plain", "gpu", 1), "resource: "),
        (RaiseCap("all", "zones", -1), "value: "),
        (RaiseCap("all", "nobody", 1), "no constraint nobody"),
        (RaiseCap("nobody", "zones", 1), "no FlowSchedulingPolicy nobody"),
        (RaiseQueueLimit("nobody", "cpu", 1), "no FlowQueue nobody"),
        (RaiseQueueLimit("team", "cpu", -1), "amount: "),
        (RemoveTaint("a", "gpu"), "node a has no taint gpu"),
        (DropPodRules("default/apart", "friends"), "rules: "),
        (CountDevices("default/plain", "gpus", "r", 1), "pod default/plain has no claim gpus"),
        (CountDevices("default/many", "other", "r", 1), "pod default/many has no claim other"),
        (CountDevices("default/many", "gpus", "other", 1), "claim default/many does not ask for what is to be changed"),
        (CountDevices("default/many", "gpus", "r", 0), "claim default/many does not ask for what is to be changed"),
        (CountDevices("default/served", "gpus", "r", 2), "claim default/served has its devices already"),
        (PutObjects([{"kind": "Pod"}]), "^Pod: metadata: expected an object"),
        (PutObjects([{}]), "^kind: expected a kind"),
        (PutPolicy({"kind": "FlowSchedulingPolicy", "metadata": {"name": "x"}}), "^FlowSchedulingPolicy x: spec: "),
    ],
)
def test_changes_that_make_no_sense(change: Change, words: str) -> None:
    """Each gives one sentence that names the field or the object, and leaves nothing behind."""
    scenario = everything()
    before = state_of(scenario)
    with pytest.raises(ModelError, match=words), applied(scenario, [change], CONTEXT):
        pass
    assert state_of(scenario) == before


def test_an_error_within_undoes_too() -> None:
    """Whatever happens while the changes hold."""
    scenario = everything()
    before = state_of(scenario)
    with pytest.raises(ZeroDivisionError), applied(scenario, [Drain("a")], CONTEXT):
        plan_scenario(scenario, 1 / 0)
    assert state_of(scenario) == before
