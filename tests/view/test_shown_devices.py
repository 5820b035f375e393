"""What the view shows of devices: numbers of nodes, and claims of pods."""

from __future__ import annotations

import json

import msgspec
import pytest
from support.device_clusters import API, GPU, claiming, slice_of
from support.scenario_state import NOW, manifest_node, scenario_of
from thalweg_view.pictures import node_devices
from thalweg_view.pictures.nodes import NodesAnswer, NodesQuery, ResourceColumns, answer_nodes
from thalweg_view.pictures.one_pod import PodQuery, answer_pod
from thalweg_view.pictures.pod_claims import PodClaimRow
from thalweg_view.rounds import RoundHistory
from thalweg_view.view_data import SourceInfo, ViewData

from flowcore.questions.scenario import Scenario, device_use, plan_scenario
from flowcore.questions.scenario.context import AnswerContext

ALL = AnswerContext(NOW)
DEVICES = "gpu.example.com devices"


def planned(scenario: Scenario) -> ViewData:
    """What the view of a dump knows."""
    data = ViewData(scenario, RoundHistory(), SourceInfo("dump", "now.json", "1"), 7)
    data.rounds.put(plan_scenario(scenario, NOW).document(seconds=0.5))
    return data


@pytest.fixture
def data() -> ViewData:
    """Node a has four GPUs, two of them taken, b has three, c none; two pods wait, of which one finds its GPUs."""
    slices = [{**API, "kind": "ResourceSlice", **slice_of(name, number)} for name, number in (("a", 4), ("b", 3))]
    older = {**API, "kind": "ResourceSlice", **slice_of("a", 9)}
    older["metadata"] = {"name": "older"}
    older["spec"]["pool"]["generation"] = 0
    everywhere = {**API, "kind": "ResourceSlice", **slice_of("shared", 5, allNodes=True)}
    everywhere["spec"]["driver"] = "net.example.com"
    return planned(
        scenario_of(
            [
                *(manifest_node(name, "z", cpu="16") for name in "abc"),
                {**API, "kind": "DeviceClass", **GPU},
                *slices,
                older,
                everywhere,
                *claiming("runs", "a", 2, "gpu-0", "gpu-1"),
                *claiming("comes", "", 3),
                *claiming("waits", "", 8),
            ]
        )
    )


def nodes(data: ViewData) -> NodesAnswer:
    return msgspec.json.decode(msgspec.json.encode(answer_nodes(data, NodesQuery(), ALL)), type=NodesAnswer)


def test_devices_of_nodes(data: ViewData) -> None:
    """Of how many a node has, how many claims have, and how many the round adds; slices out of date do not count."""
    answer = nodes(data)
    assert answer.names == ["a", "b", "c"]
    assert (answer.resources[DEVICES], answer.unsearched) == (ResourceColumns("", [4, 3, 0], [2, 0, 0], [0, 3, 0]), 0)
    assert [name for name in answer.resources if name.endswith("devices")] == [DEVICES]


def test_only_so_many_drivers_are_told_one_by_one(data: ViewData, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are one, and no device is left out. Of many placed pods the first ones are searched."""
    monkeypatch.setattr(device_use, "MOST_DRIVERS", 0)
    resources = nodes(data).resources
    assert DEVICES not in resources
    assert resources["other drivers' devices"] == ResourceColumns("", [4, 3, 0], [2, 0, 0], [0, 3, 0])
    monkeypatch.setattr(node_devices, "_MOST_PODS", 0)
    unsearched = nodes(data)
    assert unsearched.resources["other drivers' devices"].planned == [0, 0, 0]
    assert unsearched.unsearched == 1, "and it is said of how many the devices are not counted"


def test_a_round_with_nodes_of_its_own(data: ViewData) -> None:
    """Claims of then are not known."""
    plan = data.rounds.find(0)
    assert plan is not None
    plan.nodes = []
    assert node_devices.node_devices(data, plan).by_driver == {}


def test_claims_of_a_pod(data: ViewData) -> None:
    """What they have, or what they ask for."""
    (runs,) = answer_pod(data, PodQuery("default", "runs"), ALL).claims
    devices = ["gpu.example.com/a/gpu-0", "gpu.example.com/a/gpu-1"]
    assert runs == PodClaimRow("gpu", "runs-gpu", ["2 of class gpu"], True, devices)
    (waits,) = answer_pod(data, PodQuery("default", "waits"), ALL).claims
    assert waits == PodClaimRow("gpu", "waits-gpu", ["8 of class gpu"])
    assert b'"claims":[{"name":"gpu"' in msgspec.json.encode(answer_pod(data, PodQuery("default", "waits"), ALL))


def test_a_claim_that_is_not_there_yet() -> None:
    """The controller has not made it of the template; one that asks for all, or in one of two ways."""
    pod, made = claiming("p")
    requests = made["spec"]["devices"]["requests"]
    requests[0]["exactly"] = {"deviceClassName": "gpu", "allocationMode": "All"}
    ways = [{"name": name, "deviceClassName": name, "count": 2} for name in ("new", "old")]
    requests.append({"name": "s", "firstAvailable": ways})
    lacks = json.loads(json.dumps(pod).replace('"p"', '"q"'))
    lacks["status"] = {}
    data = planned(scenario_of([manifest_node("a", "z"), pod, made, lacks]))
    asks = ["all of class gpu", "2 of class new or 2 of class old"]
    assert answer_pod(data, PodQuery("default", "p"), ALL).claims == [PodClaimRow("gpu", "p-gpu", asks)]
    assert answer_pod(data, PodQuery("default", "q"), ALL).claims == [PodClaimRow("gpu")]
