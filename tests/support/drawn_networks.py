"""The files of examples/networks on a real API server: nodes that run pods, and pods of one test's namespace."""

from __future__ import annotations

from collections import Counter
from typing import Any

import yaml
from support.cluster_scenario import ClusterScenario
from support.operator import until
from support.repository import ROOT

FOLDER = ROOT / "examples" / "networks"
#: Nodes by pod, or how many pods which node has where the pods are alike; what waits is not there.
EXPECTED: dict[str, dict[str, str] | Counter[str]] = {
    "overview-figure-1": {"p0": "n0", "p1": "n2", "p2": "n1", "p4": "n3"},
    "node-selector-figure-1": Counter(m0=1, m1=1, m2=1) + Counter(any=1),
    "node-selector-figure-2": Counter(m0=2, m1=2),
    "node-selector-figure-3": Counter(m1=2),
    "taints-figure-1": Counter(m0=1, m1=1, m2=1) + Counter(any=1),
    "taints-figure-2": Counter(m0=1, m1=2, m2=2),
    "pod-affinity-figure-1": {"t0": "m0", "t1": "m1"},
    "pod-affinity-figure-2": Counter(m0=1, m1=1),
    "pod-affinity-figure-3": Counter(m0=1, m1=1, m2=1),
    "pod-affinity-figure-4": {"t0": "m0"},
    "pod-affinity-figure-5": {"t1": "m0"},
    "pod-affinity-figure-5-soft": {"t0": "m0"},
    "pod-affinity-figure-6": {"t0": "m1", "t1": "m2"},
    "pod-affinity-figure-7": Counter(m0=1, m1=1, m2=1) + Counter(any=1),
    "pod-affinity-figure-8": Counter(m0=1, m1=1, m2=1),
    "pod-affinity-figure-9": Counter(m0=1, m1=1, m2=1),
    "pod-affinity-figure-10": {"t0": "m0", "t1": "m0"},
    "pod-affinity-figure-11": Counter(m01=1, m10=1, m21=1),
    "together-or-none": {},
    "overflow": Counter(m0=2, m1=2, m2=1),
}


def is_expected(expected: dict[str, str] | Counter[str], found: dict[str, str]) -> bool:
    """Whether pods have the nodes that a text says; ``any``: so many have any node beside, none of them a third pod."""
    if not isinstance(expected, Counter):
        return found == expected
    nodes = Counter(found.values())
    beside = sum((nodes - expected).values())
    return len(found) == expected.total() and beside == expected["any"] and max(nodes.values()) <= 2


async def applied(scene: ClusterScenario, name: str, **spec: Any) -> list[str]:
    """Creates what a file says, pods last and for one round; the names of those that wait.

    Args:
        spec: of the policy, beside what the file says.
    """
    documents = list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))
    (policy,) = [each for each in documents if each["kind"] == "FlowSchedulingPolicy"]
    for each in documents:
        if each["kind"] == "PriorityClass":
            await scene.priority_class(each["metadata"]["name"], each["value"])
        if each["kind"] == "Node":
            labels = {key: value for key, value in each["metadata"]["labels"].items() if "hostname" not in key}
            taints = each.get("spec", {}).get("taints")
            await scene.nodes(
                each["metadata"]["name"], cpu=each["status"]["allocatable"]["cpu"], labels=labels, taints=taints
            )
    await scene.policy(policy["metadata"]["name"], **{**policy["spec"], **spec})
    await scene.policy_seen(policy["metadata"]["name"], 1)
    pods = [each for each in documents if each["kind"] == "Pod"]
    running = [each for each in pods if "nodeName" in each["spec"]]
    # The operator's first round has all pods: those that come while it runs may be in several.
    await scene.operator.stop()
    for those in (running, [each for each in pods if each not in running]):
        await scene.api.create_many([_pod(scene, each) for each in those])
    await scene.operator.start()
    return [each["metadata"]["name"] for each in pods if each not in running]


async def check_figure(scene: ClusterScenario, name: str, **spec: Any) -> None:
    """Applies a file, and waits until its pods are where its text says.

    Args:
        spec: of the policy, beside what the file says.
    """
    names, last = await applied(scene, name, **spec), dict[str, str]()

    async def is_there() -> bool:
        found = {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in await scene.pods()}
        last.clear()
        last.update({pod: node for pod, node in found.items() if node and pod in names})
        return is_expected(EXPECTED[name], last)

    await until(is_there, 60, lambda: f"pods to be placed as the text says, not {last}")
    for pod in set(names) - last.keys():
        await scene.reason_of(pod)


def _pod(scene: ClusterScenario, document: dict[str, Any]) -> dict[str, Any]:
    spec = {key: value for key, value in document["spec"].items() if key not in ("containers", "schedulerName")}
    cpu = document["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    return scene.pod(document["metadata"]["name"], cpu, labels=document["metadata"]["labels"], **spec)
