"""Pods that must wait are told why, once, and are taken up as soon as the reason is gone."""

from typing import Any

import pytest
from support.cluster_scenario import ClusterScenario

pytestmark = pytest.mark.asyncio(loop_scope="module")


def condition(pod: dict[str, Any]) -> dict[str, Any]:
    """Its PodScheduled condition."""
    return next(each for each in pod["status"]["conditions"] if each["type"] == "PodScheduled")


async def test_condition_and_exactly_one_event(scene: ClusterScenario) -> None:
    """PodScheduled=False with reason Unschedulable and the message, and one Event that says the same."""
    await scene.nodes("small", cpu="1")
    await scene.create("big", "2")
    message = await scene.reason_of("big", "0/1 nodes are available: 1 Insufficient cpu.")
    seen = condition(await scene.get("big"))
    assert (seen["status"], seen["reason"], seen["message"]) == ("False", "Unschedulable", message)
    assert seen["lastTransitionTime"]
    # Rounds go on and find the same reason again and again: nothing is written.
    version = (await scene.get("big"))["metadata"]["resourceVersion"]
    for number in range(3):
        await scene.wait_for_round(f"another-{number}")
    (event,) = await scene.events_of("big")
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "FailedScheduling", message)
    assert event["involvedObject"]["uid"] == (await scene.get("big"))["metadata"]["uid"]
    assert (await scene.get("big"))["metadata"]["resourceVersion"] == version


async def test_autoscalers_are_told_of_pods_that_more_nodes_help(scene: ClusterScenario) -> None:
    """Unschedulable where the nodes are full; other reasons where a limit or a missing pod is why."""
    everybody = {"groups": [{}, {"matchLabels": {"no": "pod"}}], "topologyKey": "kubernetes.io/hostname"}
    limit = {"name": "at-most-one", "exclusive": {**everybody, "maxPlaced": 1}}
    capped = {"podSelector": {"matchLabels": {"capped": "yes"}}}
    await scene.policy("capped", selects=capped, delivery="Binder", precedence=5, constraints=[limit])
    await scene.nodes("a", "b", cpu="2")
    await scene.create("first", "1", labels={"capped": "yes"})
    await scene.node_of("first")
    await scene.create("second", "1", labels={"capped": "yes"})
    await scene.reason_of("second", "at most 1 in the cluster")
    await scene.create(
        "alone", "1", annotations={"scheduling.thalweg/gang": "g", "scheduling.thalweg/gang-min-member": "2"}
    )
    await scene.reason_of("alone", "1 of 2 pods exist")
    await scene.create("large", "8")
    await scene.reason_of("large", "Insufficient cpu")
    reasons = {name: condition(await scene.get(name))["reason"] for name in ("second", "alone", "large")}
    assert reasons == {"second": "PolicyConstraints", "alone": "GangIncomplete", "large": "Unschedulable"}
    # A larger second pod fits nowhere, and the limit would hold on a new node too.
    await scene.create("third", "8", labels={"capped": "yes"})
    await scene.reason_of("third", "Insufficient cpu")
    assert condition(await scene.get("third"))["reason"] != "Unschedulable"


async def test_a_changed_reason_is_written_again(scene: ClusterScenario) -> None:
    """A second node that is too small changes the message; a second Event says so."""
    await scene.nodes("one", cpu="1")
    await scene.create("big", "2")
    await scene.reason_of("big", "0/1 nodes")
    since = condition(await scene.get("big"))["lastTransitionTime"]
    await scene.nodes("two", cpu="1")
    await scene.reason_of("big", "0/2 nodes are available: 2 Insufficient cpu.")
    assert condition(await scene.get("big"))["lastTransitionTime"] == since
    seen = [event["message"] async for event in _events(scene, "big", 2)]
    assert seen == ["0/1 nodes are available: 1 Insufficient cpu.", "0/2 nodes are available: 2 Insufficient cpu."]


async def test_no_nodes_at_all(scene: ClusterScenario) -> None:
    """An empty cluster is a reason too, and the first node is found."""
    await scene.create("alone")
    await scene.reason_of("alone", "0/0 nodes are available")
    await scene.nodes("first")
    assert await scene.node_of("alone") == "first"


async def test_a_node_that_is_added(scene: ClusterScenario) -> None:
    """Its room is used for those that wait."""
    await scene.nodes("full", cpu="1")
    await scene.create("big", "2")
    await scene.reason_of("big", "Insufficient cpu")
    await scene.nodes("roomy", cpu="2")
    assert await scene.node_of("big") == "roomy"


async def test_a_node_that_grows(scene: ClusterScenario) -> None:
    """More allocatable on a node that was there is as good as a new node."""
    await scene.nodes("growing", cpu="1")
    await scene.create("big", "2")
    await scene.reason_of("big", "Insufficient cpu")
    await scene.api.patch(
        "/api/v1/nodes/growing/status", {"status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}}}
    )
    assert await scene.node_of("big") == "growing"


async def test_a_taint_that_is_removed_and_a_label_that_is_added(scene: ClusterScenario) -> None:
    """Both wake those that wait for them."""
    await scene.nodes("closed", taints=[{"key": "closed", "effect": "NoSchedule"}])
    await scene.create("tainted-out")
    await scene.create("labelled", nodeSelector={"disk": "ssd"})
    await scene.reason_of("tainted-out", "untolerated taint")
    await scene.reason_of("labelled")
    await scene.api.patch("/api/v1/nodes/closed", {"spec": {"taints": None}})
    assert await scene.node_of("tainted-out") == "closed"
    await scene.api.patch("/api/v1/nodes/closed", {"metadata": {"labels": {"disk": "ssd"}}})
    assert await scene.node_of("labelled") == "closed"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_terminal_pods_free_their_room(scene: ClusterScenario, phase: str) -> None:
    """A pod that has ended is still there and holds nothing."""
    await scene.nodes("only", cpu="1")
    await scene.create("first", "1")
    await scene.node_of("first")
    await scene.create("second", "1")
    await scene.reason_of("second", "Insufficient cpu")
    await scene.api.patch(scene.path("first") + "/status", {"status": {"phase": phase}})
    assert await scene.node_of("second") == "only"


async def test_deleting_pods_hold_their_room_until_they_are_gone(scene: ClusterScenario) -> None:
    """A pod in its grace period still runs: its room is free only when it is gone."""
    await scene.nodes("only", cpu="1")
    await scene.create("leaving", "1")
    await scene.node_of("leaving")
    await scene.create("next", "1")
    await scene.reason_of("next", "Insufficient cpu")
    await scene.api.delete(scene.path("leaving"), gracePeriodSeconds="300")
    assert (await scene.get("leaving"))["metadata"]["deletionTimestamp"]
    await scene.wait_for_round("barrier")
    await scene.reason_of("next", "Insufficient cpu")
    await scene.delete("leaving")
    assert await scene.node_of("next") == "only"


VOLUMES = {
    "claim": {"persistentVolumeClaim": {"claimName": "data"}},
    "ephemeral": {
        "ephemeral": {
            "volumeClaimTemplate": {
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            }
        }
    },
}


@pytest.mark.parametrize("kind", sorted(VOLUMES))
async def test_pods_whose_claims_are_not_there_wait(scene: ClusterScenario, kind: str) -> None:
    """Such a pod is told which claim, in kube-scheduler's words, and is not bound."""
    await scene.nodes("roomy")
    await scene.create("stateful", volumes=[{"name": "scratch", **VOLUMES[kind]}])
    name = "data" if kind == "claim" else "stateful-scratch"
    await scene.reason_of("stateful", f'persistentvolumeclaim "{name}"' if kind == "claim" else name)
    await scene.wait_for_round("barrier")
    assert "nodeName" not in (await scene.get("stateful"))["spec"]
    assert len(await scene.events_of("stateful")) == 1


async def test_pods_wait_for_their_resource_claims(scene: ClusterScenario) -> None:
    """A pod whose claim is not there is told so and not bound."""
    await scene.nodes("roomy")
    await scene.create("claiming", resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])
    await scene.reason_of("claiming", f'could not find ResourceClaim "{scene.namespace}/gpu"')
    await scene.wait_for_round("barrier")
    assert "nodeName" not in (await scene.get("claiming"))["spec"]


async def test_pods_that_want_a_node_each(scene: ClusterScenario) -> None:
    """One a node; the one too many is told why, and is placed when a node comes."""
    await scene.nodes("a", "b")
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for name in ("one", "two", "three"):
        await scene.create(name, labels={"app": "x"}, affinity=affinity)
        await scene.wait_for_round(f"barrier-{name}")
    assert {await scene.node_of("one"), await scene.node_of("two")} == {"a", "b"}
    await scene.reason_of("three", "didn't match pod anti-affinity rules")
    await scene.nodes("c")
    assert await scene.node_of("three") == "c"


async def test_a_pod_that_waits_for_another(scene: ClusterScenario) -> None:
    """It is told that nobody is there yet, and follows when somebody is."""
    await scene.nodes("a", "b")
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    await scene.create("follower", affinity=affinity)
    await scene.reason_of("follower", "didn't match pod affinity rules")
    await scene.create("leader", labels={"app": "x"})
    assert await scene.node_of("follower") == await scene.node_of("leader")


async def test_hard_spread_is_a_rule_and_soft_spread_is_none(scene: ClusterScenario) -> None:
    """DoNotSchedule keeps a pod from nodes without the label, ScheduleAnyway does not."""
    await scene.nodes("a", "b")

    def spread(how: str) -> list[dict[str, Any]]:
        selector = {"matchLabels": {"app": "x"}}
        return [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": how, "labelSelector": selector}]

    await scene.create("hard", topologySpreadConstraints=spread("DoNotSchedule"))
    await scene.create("soft", topologySpreadConstraints=spread("ScheduleAnyway"))
    await scene.node_of("soft")
    await scene.reason_of("hard", "didn't match pod topology spread constraints (missing required label)")


async def test_gated_pods_are_left_alone_until_ungated(scene: ClusterScenario) -> None:
    """The API server's own words stay on it, no Event is written; with the last gate gone it is placed."""
    await scene.nodes("a")
    await scene.create("gated", schedulingGates=[{"name": "example.com/one"}, {"name": "example.com/two"}])
    await scene.wait_for_round("barrier-1")
    seen = condition(await scene.get("gated"))
    assert (seen["reason"], "nodeName" in (await scene.get("gated"))["spec"]) == ("SchedulingGated", False)
    await scene.api.patch(scene.path("gated"), {"spec": {"schedulingGates": [{"name": "example.com/two"}]}})
    await scene.wait_for_round("barrier-2")
    assert "nodeName" not in (await scene.get("gated"))["spec"]
    assert await scene.events_of("gated") == []
    await scene.api.patch(scene.path("gated"), {"spec": {"schedulingGates": None}})
    assert await scene.node_of("gated") == "a"


async def test_other_schedulers_pods_are_never_touched(scene: ClusterScenario) -> None:
    """Not bound, not told anything, though there is room."""
    await scene.nodes("a")
    made = await scene.create("theirs", scheduler="somebody-else")
    await scene.wait_for_round("barrier")
    assert await scene.get("theirs") == made


async def test_a_placed_pod_is_not_called_unschedulable(scene: ClusterScenario) -> None:
    """Of many pods that wait first and are placed later, none keeps a PodScheduled=False condition."""
    await scene.nodes("full", cpu="1")
    names = [f"p{number}" for number in range(60)]
    await scene.api.create_many([scene.pod(name, "2") for name in names])
    await scene.reason_of(names[0], "Insufficient cpu")
    # While the others are being told, room comes.
    await scene.nodes(*(f"roomy-{number}" for number in range(15)), cpu="8")
    await scene.nodes_of(*names)
    assert {condition(each)["status"] for each in await scene.pods() if each["metadata"]["name"] in names} == {"True"}


async def _events(scene: ClusterScenario, name: str, count: int) -> Any:
    await scene.api.wait_for(
        f"/api/v1/namespaces/{scene.namespace}/events?fieldSelector=involvedObject.name={name}",
        lambda page: len(page["items"]) >= count,
    )
    for event in await scene.events_of(name):
        yield event
