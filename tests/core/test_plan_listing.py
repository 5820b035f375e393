"""The plan as an answer: each waiting pod once, nobody's pods but one's own, and Observe's plans beside the truth."""

import re
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.device_clusters import API, GPU, claiming, slice_of
from support.draw import Case, crowded_cases
from support.profiles import examples
from support.scenario_state import NOW, drawn_scenario, manifest_node, manifest_pod, scenario_of, state_of

from flowcore.costs import MODELS
from flowcore.model.policies import STEERED_NAME, Delivery, Policy, Selects, only_observed
from flowcore.model.selectors import LabelSelector
from flowcore.planning.plan_document import to_plan_document
from flowcore.questions.scenario import Scenario, plan_scenario
from flowcore.questions.scenario.context import AnswerContext, UnknownName
from flowcore.questions.scenario.observed import ObservedPod, compare_observed
from flowcore.questions.scenario.plan_listing import PlanQuery, answer_plan

CONTEXT = AnswerContext(NOW)
#: Governs all pods of kube-scheduler.
_OBSERVING = Policy(
    "observing",
    selects=Selects(scheduler_names=("default-scheduler",), pods=LabelSelector()),
    delivery=Delivery.OBSERVE,
)


def observed(scenario: Scenario) -> Scenario:
    scenario.policies[_OBSERVING.name] = _OBSERVING
    return scenario


def seeing(*namespaces: str) -> Callable[[str], bool]:
    return lambda namespace: namespace in namespaces


@settings(max_examples=examples(30))
@given(case=crowded_cases())
def test_every_waiting_pod_is_listed_once(case: Case) -> None:
    """With its node or with a reason, as the plan has it; the scenario stays what it was."""
    scenario = observed(drawn_scenario(case))
    before, waiting = state_of(scenario), {pod.key for pod in scenario.waiting()}
    answer = answer_plan(scenario, PlanQuery(), CONTEXT)
    plan = plan_scenario(scenario, NOW, MODELS)
    listed = [each.pod for each in answer.placed] + [each.pod for each in answer.waiting]
    assert sorted(listed) == sorted(waiting)
    assert {each.pod: each.node for each in answer.placed} == {
        each.pod.key: each.node for each in plan.result.placements
    }
    assert all(each.reason for each in answer.waiting)
    assert (answer.cost, answer.hidden) == (plan.result.cost, 0)
    assert state_of(scenario) == before


@settings(max_examples=examples(20))
@given(case=crowded_cases(), data=st.data())
def test_nobody_sees_pods_that_they_may_not_read(case: Case, data: st.DataObject) -> None:
    """No name of theirs is anywhere in the answer, nor of a node that may not be read; they are counted."""
    scenario = observed(drawn_scenario(case))
    namespaces = sorted({pod.namespace for pod in scenario.cluster.pods.values()})
    seen = data.draw(st.lists(st.sampled_from(namespaces), unique=True)) if namespaces else []
    nodes = data.draw(st.booleans())
    answer = answer_plan(scenario, PlanQuery(), AnswerContext(NOW, sees=seeing(*seen), nodes=nodes))
    text = msgspec.json.encode(answer).decode()
    hidden = [pod for pod in scenario.cluster.pods.values() if pod.namespace not in seen]
    assert not [pod.key for pod in hidden if re.search(rf"\b{pod.key}\b", text)]
    assert nodes or not [name for name in scenario.cluster.nodes if re.search(rf"\b{name}\b", text)]
    assert answer.hidden == sum(not pod.node_name and not pod.terminal for pod in hidden)


def test_one_namespace_and_one_policy() -> None:
    """They choose what is listed; the plan and its cost are of all pods."""
    shop, stock = manifest_pod("p"), manifest_pod("q")
    for each, namespace in ((shop, "shop"), (stock, "stock")):
        each["metadata"]["namespace"] = namespace
    scenario = observed(scenario_of([manifest_node("a", "z"), shop, stock]))
    whole = answer_plan(scenario, PlanQuery(), CONTEXT)
    part = answer_plan(scenario, PlanQuery(namespace="shop"), CONTEXT)
    assert [each.pod for each in part.placed] == ["shop/p"]
    assert part.cost == whole.cost
    assert len(answer_plan(scenario, PlanQuery(policy="observing"), CONTEXT).placed) == 2
    with pytest.raises(UnknownName, match='policy "none": no FlowSchedulingPolicy has this name'):
        answer_plan(scenario, PlanQuery(policy="none"), CONTEXT)


def compared(*objects: dict[str, object]) -> list[ObservedPod]:
    return compare_observed(observed(scenario_of(objects)), NOW, MODELS)


def test_observed_pods_beside_their_nodes() -> None:
    """A pod that crowds a node would be elsewhere; one that no node takes as it is would wait, with the reason."""
    crowd = [manifest_pod(f"p-{number}", "a") for number in range(2)]
    found = compared(manifest_node("a", "z", pods=1), manifest_node("b", "z", pods=1), *crowd)
    assert sorted(each.planned for each in found) == ["a", "b"]
    (alone,) = compared(manifest_node("a", "z", kind="old"), manifest_pod("p", "a", kind="new"))
    assert (alone.node, alone.planned) == ("a", "")
    assert "didn't match Pod's node affinity/selector" in alone.reason


def test_equal_pods_are_exchanged() -> None:
    """Which of two equal pods is on which node is no difference."""
    nodes = [manifest_node(name, "z", pods=1) for name in ("a", "b")]
    for first, second in (("a", "b"), ("b", "a")):
        pods = [manifest_pod("p", first), manifest_pod("q", second)]
        for each in pods:
            each["metadata"]["labels"] = {}
        found = compared(*nodes, *pods)
        assert len(found) == 2
        assert all(each.planned == each.node for each in found)


def test_pods_that_stay_anyway_are_not_compared() -> None:
    """Those of DaemonSets, those that are being deleted, and those on nodes that are not known."""
    leaving = manifest_pod("leaving", "a", deletionTimestamp="2026-01-01T00:00:00Z")
    daemon = manifest_pod("daemon", "a", owner="DaemonSet")
    assert compared(manifest_node("a", "z"), leaving, daemon, manifest_pod("lost", "none")) == []


def with_gpus() -> Scenario:
    """Node a has four GPUs; a pod claims two of them by a template, another asks for the class's extended resource."""
    backing = {**API, "kind": "DeviceClass", "metadata": GPU["metadata"]}
    backing["spec"] = {"extendedResourceName": "nvidia.com/gpu"}
    asking = manifest_pod("asks")
    asking["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "1"
    slices = {**API, "kind": "ResourceSlice", **slice_of("a", 4)}
    steered = {"schedulerName": STEERED_NAME}
    asking["spec"] |= steered
    return scenario_of(
        [manifest_node("a", "z", cpu="16"), backing, slices, *claiming("claims", "", 2), asking, manifest_pod("plain")]
    )


def test_running_pods_of_an_operator_that_only_observes_are_not_compared() -> None:
    """Where no policy of the cluster governs them. Else each plan would place all pods of the cluster anew."""
    scenario = scenario_of([manifest_node("a", "z", pods=1), *(manifest_pod(name, "a") for name in ("p", "q"))])
    scenario.policies = {policy.name: policy for policy in only_observed([])}
    answer = answer_plan(scenario, PlanQuery(), CONTEXT)
    assert answer.observed == []
    assert not [each for each in answer.warnings if "(observed)" in each]
    assert len(compare_observed(observed(scenario), NOW, MODELS)) == 2


def test_placed_pods_say_their_devices() -> None:
    """Claim, request and device of each; no device twice; none of a pod that claims nothing."""
    scenario = with_gpus()
    answer = answer_plan(scenario, PlanQuery(), CONTEXT)
    by_pod = {each.pod.partition("/")[2]: each.devices for each in answer.placed}
    assert not by_pod["plain"]
    assert [(each.claim, each.request) for each in by_pod["claims"]] == [("claims-gpu", "r"), ("claims-gpu", "r")]
    assert [each.claim for each in by_pod["asks"]] == [""]
    devices = [(each.driver, each.pool, each.device) for pod in by_pod.values() for each in pod]
    assert len(set(devices)) == 3
    assert {(driver, pool) for driver, pool, _ in devices} == {("gpu.example.com", "a")}


def test_devices_do_not_tell_who_has_a_pool() -> None:
    """Pools are named after nodes: who may not read nodes hears of no device."""
    answer = answer_plan(with_gpus(), PlanQuery(), AnswerContext(NOW, nodes=False))
    assert len(answer.placed) == 3
    assert not any(each.devices for each in answer.placed)


def test_the_worker_says_no_devices() -> None:
    """What it writes of a plan is read by nobody who asks for devices, and a search costs."""
    plan = plan_scenario(with_gpus(), NOW, MODELS)
    positions = {each.pod.key: place for place, each in enumerate(plan.result.placements)}
    document = to_plan_document([plan.result], positions, plan.policies.values())
    assert len(document.placements) == 3
    assert not any(each.devices for each in document.placements)
