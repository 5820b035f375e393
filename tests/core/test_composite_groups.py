"""Pods of PodGroups that belong to a CompositePodGroup wait and say so, and those that run are not evicted."""

import json
from typing import Any

import pytest
from support.cli import node, plan_of, pod, thalweg

API = "scheduling.k8s.io/v1beta1"
REASON = "it belongs to CompositePodGroup default/all, an alpha kind of Kubernetes 1.37 that Thalweg does not plan yet"


def group(name: str, policy: dict[str, Any], *pods: dict[str, Any], **spec: Any) -> list[dict[str, Any]]:
    """A PodGroup and its pods."""
    meta = {"name": name, "namespace": "default"}
    made = {"apiVersion": API, "kind": "PodGroup", "metadata": meta, "spec": {"schedulingPolicy": policy, **spec}}
    members = [{**each, "spec": {**each["spec"], "schedulingGroup": {"podGroupName": name}}} for each in pods]
    return [made, *members]


@pytest.mark.parametrize("policy", [{"gang": {"minCount": 2}}, {"basic": {}}])
def test_its_pods_wait_and_say_so(policy: dict[str, Any]) -> None:
    """Though there is room for all of them, and though single ones may be placed by themselves. Nobody else waits."""
    below = group("part", policy, pod("part-0"), pod("part-1"), parentCompositePodGroupName="all")
    alone = group("alone", {"gang": {"minCount": 2}}, pod("alone-0"), pod("alone-1"))
    answer = plan_of(node("n", "9"), *below, *alone)
    assert answer["placements"].keys() == {"default/alone-0", "default/alone-1"}
    assert {key: each["reason"] for key, each in answer["pending"].items()} == {
        f"default/part-{number}": f"PodGroup default/part: {REASON}." for number in range(2)
    }


def why(name: str, *objects: dict[str, Any]) -> str:
    """What ``thalweg why`` prints, as one line."""
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    return " ".join(thalweg("why", name, "--no-fixes", "-f", "-", stdin=dump).stdout.split())


def test_why_names_it() -> None:
    """The first answer of all."""
    below = group("part", {"gang": {"minCount": 1}}, pod("part-0"), parentCompositePodGroupName="all")
    assert f"PodGroup default/part: {REASON}" in why("default/part-0", node("n"), *below)


@pytest.mark.parametrize("parent", ["", "all"])
def test_its_running_pods_are_not_evicted(parent: str) -> None:
    """The CompositePodGroup, which is not read, may say that all leave or none, and with which priority."""
    policy: dict[str, Any] = {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowSchedulingPolicy",
        "metadata": {"name": "p"},
        "spec": {"selects": {"schedulerNames": ["default-scheduler"]}, "delivery": "Observe"},
    }
    runs = pod("part-0", "3", status={"phase": "Running"}, nodeName="n")
    below = group("part", {"gang": {"minCount": 1}}, runs, parentCompositePodGroupName=parent)
    objects = (node("n"), *below, pod("urgent", "3", priority=1000), policy)
    assert set(plan_of(*objects)["evicted"]) == (set() if parent else {"default/part-0"})
    if parent:
        assert f"pods with a lower priority cannot be evicted; default/part-0: {REASON}" in why(
            "default/urgent", *objects
        )
