"""An error of a claim on a node that the pod's other filters leave ends the pod's attempt, as in kube-scheduler."""

from typing import Any

import pytest
from support.device_clusters import API
from support.scenario_state import manifest_node, manifest_pod, scenario_of

from flowcore.questions.scenario import ScenarioPlan, plan_scenario

Manifest = dict[str, Any]
NOW = 1_770_000_000.0
DRIVER = "gpu.example.com"
ERRS = f"device.attributes['{DRIVER}'].exists"
NO_KEY = "CEL runtime error: no such key: exists"


def cel(expression: str) -> list[Manifest]:
    return [{"cel": {"expression": expression}}]


def device_class(*selectors: Manifest) -> Manifest:
    return {**API, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {"selectors": list(selectors)}}


def slice_with(node: str, *attributes: Manifest) -> Manifest:
    """Devices of a node, each with these attributes."""
    devices = [{"name": f"d{number}", "attributes": each} for number, each in enumerate(attributes)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return {**API, "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec}


GOOD: Manifest = {"exists": {"bool": True}}
BAD: Manifest = {"healthy": {"bool": True}}


def asking(name: str, request: Manifest, **spec: Any) -> list[Manifest]:
    pod = manifest_pod(name, cpu="1")
    pod["spec"] |= {"resourceClaims": [{"name": "r", "resourceClaimName": name}], **spec}
    metadata = {"name": name, "namespace": "default", "uid": f"claim-{name}"}
    claim = {**API, "kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": {"requests": [request]}}}
    return [pod, claim]


def exactly(**fields: Any) -> Manifest:
    return {"name": "r", "exactly": {"deviceClassName": "gpu", **fields}}


NODES = [manifest_node("a", "z"), manifest_node("b", "z")]
SLICES = [slice_with("a", GOOD), slice_with("b", BAD)]


def planned(objects: list[Manifest]) -> ScenarioPlan:
    return plan_scenario(scenario_of(objects), NOW)


def reason_of(plan: ScenarioPlan, pod: str = "p") -> str:
    (unplaced,) = [each for each in plan.result.unplaced if each.pod.key == f"default/{pod}"]
    assert unplaced.code == "DynamicResources"
    assert not unplaced.more_nodes_help
    return unplaced.reason


@pytest.mark.parametrize(
    "asked",
    [
        exactly(selectors=cel(ERRS)),
        exactly(selectors=cel(ERRS), adminAccess=True),
        exactly(selectors=cel(ERRS), allocationMode="All"),
        {"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "gpu", "selectors": cel(ERRS)}]},
    ],
)
def test_an_error_on_one_node_ends_the_attempt(asked: Manifest) -> None:
    """The expression holds on node a and errs on b: the pod waits, and hears of the error."""
    plan = planned([*NODES, device_class(), *SLICES, *asking("p", asked)])
    assert reason_of(plan) == f"0/2 nodes are available: claim default/p: selector #0: {NO_KEY}."
    assert not plan.result.evictions


def test_an_error_of_a_class() -> None:
    """It is the reason of each pod that asks for the class."""
    plan = planned([*NODES, device_class(*cel(ERRS)), *SLICES, *asking("p", exactly())])
    assert reason_of(plan) == f"0/2 nodes are available: class gpu: selector #0: {NO_KEY}."


def test_nodes_that_other_filters_reject_do_not_count() -> None:
    """kube-scheduler asks no claim about a node that does not match, or is full."""
    full = manifest_pod("full", "b", cpu="4")
    matching = {"nodeSelector": {"topology.kubernetes.io/zone": "y"}}
    asks = exactly(selectors=cel(ERRS))
    for objects in (
        [*NODES, full, *asking("p", asks)],
        [manifest_node("a", "y"), NODES[1], *asking("p", asks, **matching)],
    ):
        plan = planned([*objects, device_class(), *SLICES])
        assert [(each.pod.key, each.node) for each in plan.result.placements] == [("default/p", "a")]


def test_others_leave_for_a_pod_where_a_full_node_would_err() -> None:
    """Of the node without an error, whose pods leave; the other one stays full, and its claim is not asked about."""
    full = [manifest_pod(f"on-{node}", node, cpu="4") for node in "ab"]
    asks = asking("p", exactly(selectors=cel(ERRS)))
    for each, priority in (*((pod, -10) for pod in full), (asks[0], 100)):
        each["spec"]["priority"] = priority
    result = planned([*NODES, *full, device_class(), *SLICES, *asks]).result
    assert [each.node for each in result.placements] == ["a"]
    assert [each.pod.key for each in result.evictions] == ["default/on-a"]
    for objects in ([*full, SLICES[1]], [full[0], *SLICES]):  # nobody has good devices; or node b is not full
        result = planned([*NODES, *objects, device_class(), *asks]).result
        assert (result.placements, result.evictions) == ((), ())


def test_an_error_that_the_search_comes_to_later() -> None:
    """Two pods have the good devices; the search for the next one comes to the device that errs."""
    slices = [slice_with("a", GOOD, BAD), slice_with("b", GOOD)]
    pods = [each for name in "pqr" for each in asking(name, exactly(selectors=cel(ERRS)))]
    plan = planned([*NODES, device_class(), *slices, *pods])
    assert sorted(each.node for each in plan.result.placements) == ["a", "b"]
    (unplaced,) = plan.result.unplaced
    assert unplaced.code == "DynamicResources"
    assert NO_KEY in unplaced.reason


def test_an_expression_that_costs_too_much_is_the_matter_of_a_node() -> None:
    """What it may cost here is less than what the API server lets it: other nodes are asked."""
    digits = "[0,1,2,3,4,5,6,7,8,9]"
    all_of = f"{digits}.all(a, {digits}.all(b, {digits}.all(c, {digits}.all(d, {digits}.all(e, a+b+c+d+e >= 0)))))"
    dear = f"device.attributes['{DRIVER}'].exists || {all_of}"
    slices = [slice_with("a", GOOD), slice_with("b", {"exists": {"bool": False}})]
    plan = planned([*NODES, device_class(), *slices, *asking("p", exactly(selectors=cel(dear)))])
    assert [each.node for each in plan.result.placements] == ["a"]


def test_a_pod_is_placed_once_the_slice_is_mended() -> None:
    """With the attribute on every node."""
    pods = asking("p", exactly(selectors=cel(ERRS)))
    assert planned([*NODES, device_class(), *SLICES, *pods]).result.unplaced
    assert not planned([*NODES, device_class(), SLICES[0], slice_with("b", GOOD), *pods]).result.unplaced
