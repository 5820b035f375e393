"""Configuration of any kind, in any state that it can have, stops no round and no answer.

The objects go the way that they go in the operator: as lines of a watch through decoder, sink and event, in a request
through the wire format, and to the worker's own function. Then a dump of the same objects is asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec
import pytest
from support.cli import Manifest, node, pod
from support.fake_cluster.driven_ledger import DrivenLedger
from support.scenario_state import NOW
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.outages import Outages
from thalweg_operator.api.watches.watched import make_reflectors
from thalweg_operator.metrics import Metrics
from thalweg_operator.planning.deadline import RoundDeadline
from thalweg_operator.planning.inputs.measured_usage import MeasuredUsageTracker
from thalweg_operator.planning.inputs.running_pods import RunningPodsTracker
from thalweg_operator.planning.round_request import RequestBuilder
from thalweg_operator.planning.worker.messages import RoundReply, RoundRequest
from thalweg_operator.planning.worker.planner import run_request
from thalweg_operator.planning.worker.replica import Replica
from thalweg_view.operations import OPERATIONS
from thalweg_view.rounds import RoundHistory
from thalweg_view.view_data import SourceInfo, ViewData

from flowcore.api import kinds
from flowcore.api.kinds import ObjectKind
from flowcore.costs import BUILT_IN_MODELS
from flowcore.model.errors import ModelError
from flowcore.questions.scenario import Scenario, plan_scenario
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.reading.edits import Edits
from flowcore.questions.scenario.reading.objects import ObjectReader

_READ = (*kinds.KINDS, *kinds.IN_DUMPS)
_PODS = {"podSelector": {}}
_CEL = {"cel": {"expression": "device.driver == 'x'"}}
_BASIC = {"devices": [{"name": "d"}]}
_POOL = {"name": "p", "generation": 1, "resourceSliceCount": 1}


def _policies() -> Iterator[tuple[str, Any]]:
    yield "nothing", {}
    yield "all", {"selects": _PODS}
    yield "invalid", {"selects": {"podSelector": 5}}
    yield "unknown model", {"selects": _PODS, "cost": {"model": "Nobody"}}
    yield "a field that is ignored", {"selects": _PODS, "cost": {"learn": {"from": "FinishedPods"}}}
    yield "moves", {"selects": _PODS, "rescheduling": {"mode": "Act"}}
    yield "proposes", {"selects": _PODS, "rescheduling": {"mode": "Propose", "reasons": ["Gain"]}}
    yield "observes", {"selects": _PODS, "delivery": "Observe"}
    yield "extender", {"selects": _PODS, "delivery": "Extender"}
    for mode in ("Required", "Preferred"):
        apart = {"podSelector": {}, "topologyKey": "zone", "kind": "AntiAffinity", "mode": mode}
        yield f"contradicts itself, {mode}", {"selects": _PODS, "constraints": [apart]}


def _queues() -> Iterator[tuple[str, Any]]:
    yield "alone", [{}]
    yield "selects", [{"selects": _PODS}]
    yield "unknown parent", [{"parent": "company", "selects": _PODS}]
    yield "parent that is unknown", [{"parent": "q1"}, {"parent": "company", "selects": _PODS}]
    yield "circle of one", [{"parent": "q0"}]
    yield "circle", [{"parent": "q1", "selects": _PODS}, {"parent": "q0"}]
    yield "below a circle", [{"parent": "q1", "selects": _PODS}, {"parent": "q2"}, {"parent": "q1"}]
    yield "too deep", [{"parent": f"q{at + 1}"} if at < 17 else {} for at in range(18)]
    yield "invalid", [{"weight": -1}]
    yield "invalid parent", [{"parent": "q1", "selects": _PODS}, {"weight": "x"}]
    yield "nothing is offered", [{"selects": _PODS, "limit": {"nobody.example/gpu": 1}, "guarantee": {"pods": 0}}]
    yield "guarantee above all", [{"selects": _PODS, "limit": {"cpu": "1"}, "guarantee": {"cpu": "9000"}}]
    yield "limit of nothing", [{"selects": _PODS, "limit": {"cpu": 0, "pods": 0}}]
    yield "unread", [5]


def _named(kind: ObjectKind, name: str, **rest: Any) -> Manifest:
    metadata = {"name": name, "uid": f"u-{kind.kind}-{name}", "generation": 1}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": metadata | ({"namespace": "default"} if kind.namespaced else {}),
        **rest,
    }


#: What is beside metadata in objects of other kinds. Each kind has an object without anything too, and one whose fields
#: have types of others.
_REST: dict[str, list[dict[str, Any]]] = {
    "PriorityClass": [{"value": 5, "globalDefault": True}, {"value": 2**40}, {"value": 1, "preemptionPolicy": "No"}],
    "DeviceClass": [{"spec": {"selectors": [_CEL]}}, {"spec": {"selectors": [{"cel": {"expression": "1 +"}}]}},
                    {"spec": {"extendedResourceName": "example.com/gpu"}}],
    "ResourceSlice": [{"spec": {"driver": "x", "nodeName": "n0", "pool": _POOL, **_BASIC}},
                      {"spec": {"driver": "x", "allNodes": True, "pool": _POOL | {"resourceSliceCount": 2}, **_BASIC}},
                      {"spec": {"driver": "x", "nodeName": "nowhere", "pool": _POOL, "devices": []}}],
    "ResourceClaim": [{"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "none"}}]}}}],
    "ResourceClaimTemplate": [
        {"spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "none"}}]}}}}],
    "DeviceTaintRule": [{"spec": {"taint": {"key": "k", "effect": "NoExecute"}}},
                        {"spec": {"deviceSelector": {"driver": "x"}, "taint": {"key": "k", "effect": "No"}}}],
    "PodDisruptionBudget": [{"spec": {"selector": {}, "minAvailable": "200%"}}, {"spec": {"maxUnavailable": 0},
                             "status": {"disruptionsAllowed": 0}}],
    "NodeResourceTopology": [{"zones": [{"name": "node-0", "type": "Node", "resources": []}]}, {"zones": []}],
    "HyperNode": [{"spec": {"tier": 1, "members": [{"type": "Node", "selector": {"exactMatch": {"name": "n0"}}}]}},
                  {"spec": {"tier": 2, "members": [{"type": "HyperNode", "selector": {"exactMatch": {"name": "it"}}}]}},
                  {"spec": {"tier": -1, "members": [{"type": "Node", "selector": {"regexMatch": {"pattern": "("}}}]}}],
    "PersistentVolume": [{"spec": {"capacity": {"storage": "1Gi"}, "nodeAffinity": {"required": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}]}}}}],
    "PersistentVolumeClaim": [{"spec": {"storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}}}],
    "StorageClass": [{"provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": [
        {"matchLabelExpressions": [{"key": "zone", "values": []}]}]}],
    "CSINode": [{"spec": {"drivers": [{"name": "x", "nodeID": "n0", "allocatable": {"count": -1}}]}}],
    "CSIDriver": [{"spec": {"storageCapacity": True}}],
    "CSIStorageCapacity": [{"storageClassName": "none", "capacity": "1Gi", "nodeTopology": {}}, {"capacity": "x"}],
    "VolumeAttachment": [{"spec": {"attacher": "x", "nodeName": "nowhere", "source": {}}}],
    "PodGroup": [{"spec": {"minMember": 5}}, {"spec": {"minMember": -1}},
                 {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}, "priorityClassName": "none"}},
                 {"spec": {"parentCompositePodGroupName": "it"}}],
    "NodeMetrics": [{"timestamp": "2026-02-02T02:40:00Z", "window": "30s", "usage": {"cpu": "1", "memory": "1Gi"}}],
    "PodMetrics": [{"timestamp": "2026-02-02T02:40:00Z", "window": "30s", "containers": []}],
}  # fmt: skip
_WRONG = {"spec": {"tier": [], "members": 5, "devices": "d", "selector": 7, "minMember": "x", "drivers": 1}, "zones": 1}


def _cases() -> Iterator[Any]:
    """Each kind that is read but nodes, pods and namespaces, in each of its states."""
    for label, spec in _policies():
        yield pytest.param([_named(kinds.POLICY, "it", spec=spec)], id=f"FlowSchedulingPolicy: {label}")
    for label, specs in _queues():
        objects = [_named(kinds.QUEUE, f"q{at}", spec=spec) for at, spec in enumerate(specs)]
        yield pytest.param(objects, id=f"FlowQueue: {label}")
        yield pytest.param(
            [*objects, _named(kinds.QUEUE, "good", spec={"selects": _PODS})], id=f"FlowQueue: {label}, beside another"
        )
    core = {kinds.NODE, kinds.POD, kinds.NAMESPACE, kinds.POLICY, kinds.QUEUE}
    for kind in (each for each in _READ if each not in core):
        for number, rest in enumerate([{}, _WRONG, *_REST.get(kind.kind, [{"spec": {"replicas": 2}}])]):
            yield pytest.param([_named(kind, "it", **rest)], id=f"{kind.qualified}: {number}")


class _Operator:
    """Cluster, ledger and worker, fed by lines of watches."""

    def __init__(self) -> None:
        self.state, self.replica, metrics = DrivenLedger(lambda: 1000.0), Replica(), Metrics()
        shell, cluster = self.state.shell, self.state.cluster
        running = RunningPodsTracker(shell.state, lambda: 1000.0, lambda: NOW, lambda: True)
        usage = MeasuredUsageTracker(cluster, self.state.ledger, None)
        clocks = (lambda: 1000.0), (lambda: NOW)
        deadline = RoundDeadline(60.0, 1.0)
        self.builder = RequestBuilder(shell.state, self.state.policies, 1.0, deadline, *clocks, running, usage)
        api = cast("ApiClient", _NoApi())
        self.reflectors = make_reflectors(shell, api, metrics, BadInput(metrics))
        self.fresh = True
        self.state.set_namespace("default", ())

    def show(self, item: Manifest, event: str = "ADDED") -> None:
        """The watch of its kind shows an object."""
        if item["kind"] == kinds.POLICY.kind:
            metadata = item["metadata"]
            if event == "DELETED":
                self.state.policies.forget(metadata["name"], metadata["uid"])
            else:
                self.state.policies.offer(metadata["name"], metadata["uid"], 1, item["spec"])
            return
        paths = next(
            kind.paths for kind in _READ if (kind.api_version, kind.kind) == (item["apiVersion"], item["kind"])
        )
        for reflector in self.reflectors.values():
            if reflector.path in paths:
                shown = item | {"metadata": item["metadata"] | {"resourceVersion": "1"}}
                reflector._apply(json.dumps({"type": event, "object": shown}).encode())

    def plan(self, *waiting: str) -> RoundReply:
        """A round with these pods."""
        cluster = self.state.cluster
        planning_input = self.builder.planning_input()
        places = {policy.name: place for place, policy in enumerate(planning_input.policies)}
        pods = [cluster.pods[key] for key in waiting]
        governing = [cluster.policies.of(each, cluster.namespaces) for each in pods]
        governed = [(each, places[policy.name]) for each, policy in zip(pods, governing, strict=True) if policy]
        request = asyncio.run(self.builder.build(planning_input, governed, reset=self.fresh))
        self.fresh = False
        return run_request(self.replica, msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=RoundRequest))


class _NoApi:
    """Reflectors are not run here."""

    outages = Outages()


def _answers(objects: Sequence[Manifest]) -> list[msgspec.Struct]:
    """What the commands and the view say of a dump; [] where it is refused with the name of a field."""
    scenario = Scenario(moment=NOW)
    reader = ObjectReader(Edits(scenario), NOW, BUILT_IN_MODELS)
    try:
        for item in objects:
            reader.put(item, item["kind"])
    except (ModelError, msgspec.ValidationError):
        return []
    scenario.gaps += reader.resolve()
    data = ViewData(scenario, RoundHistory(), SourceInfo("dump", "now.json", "1"), 7)
    data.rounds.put(plan_scenario(scenario, NOW).document())
    not_asked = {"pods", "headroom", "what-if", "why"}
    if scenario.free_by_omission:
        not_asked.add("audit")  # it refuses a dump without pods
    asked = {name: each for name, each in OPERATIONS.items() if name not in not_asked}
    return [each.answer(data, each.query(), AnswerContext(NOW)) for each in asked.values()]


@pytest.mark.parametrize("objects", list(_cases()))
def test_no_configuration_stops_a_round(objects: list[Manifest]) -> None:
    """Alone, with a pod, beside a node and a running pod, and once it is gone again: each time there is a plan."""
    operator = _Operator()
    for item in objects:
        operator.show(item)
    assert not operator.plan().problem
    operator.show(node("n0"))
    operator.show(pod("runs", metadata={"uid": "u-runs"}, nodeName="n0", schedulerName="thalweg"))
    operator.show(pod("waits", metadata={"uid": "u-waits"}, schedulerName="thalweg"))
    assert not operator.plan().problem
    reply = operator.plan("default/waits")
    assert len(reply.placements) + len(reply.unplaced) <= 1
    assert reply.warnings == []
    for item in objects:
        operator.show(item, "DELETED")
    placed = operator.plan("default/waits").placements
    assert [each.node for each in placed] == ["n0"]


@pytest.mark.parametrize("objects", list(_cases()))
def test_no_configuration_stops_an_answer(objects: list[Manifest]) -> None:
    """What is asked of a dump: objects alone, and beside a node and a pod that waits."""
    _answers(objects)
    _answers([*objects, node("n0"), pod("waits", metadata={"uid": "u-waits"}, schedulerName="thalweg")])


def test_every_kind_that_is_read_is_tried() -> None:
    """A new kind has its states here."""
    tried = {item["kind"] for case in _cases() for item in case.values[0]}
    assert {kind.kind for kind in _READ} - tried == {"Node", "Pod", "Namespace"}
