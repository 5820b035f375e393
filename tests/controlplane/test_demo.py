"""``thalweg demo``'s column ONE BY ONE, held against what the real kube-scheduler does with the same nodes and pods."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
import pytest_asyncio
from support.controlplane import running
from thalweg.demo import constraints, pods
from thalweg.demo.scene import PodSet, Scene
from thalweg.demo.scene_result import SceneResult
from thalweg.demo.show import compare
from thalweg_controlplane import Api, Binaries
from thalweg_controlplane.client.objects import node, object_path, pod

from flowcore.model.nodes import Node
from flowcore.model.resources import Amounts, is_extended

pytestmark = pytest.mark.asyncio(loop_scope="module")

PODS = "/api/v1/namespaces/demo/pods"
#: Without policies: kube-scheduler knows none. It has no gangs either; their pods are pods to it, as one by one.
SCENES = (
    constraints.gangs(),
    pods.gpu_node(),
    pods.mixed_sizes(),
    pods.preferences(),
    pods.oversubscribed(),
    pods.pinned(),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(binaries: Binaries) -> AsyncIterator[Api]:
    async with running(binaries, controller_manager=False, kwok=False) as (_, api):
        await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}})
        for priority in sorted({each.pod_class.priority for scene in SCENES for each in scene.sets} - {0}):
            await api.create(priority_class(priority))
        yield api


def priority_class(value: int) -> dict[str, Any]:
    """Of pods with this priority; they evict nobody."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": f"priority-{value}"},
        "value": value,
        "preemptionPolicy": "Never",
    }


def quantities(amounts: Amounts) -> dict[str, str]:
    """As Kubernetes writes them."""
    return {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in amounts}


def extended(amounts: Amounts) -> dict[str, str]:
    return {name: text for name, text in quantities(amounts).items() if is_extended(name)}


def node_manifest(of: Node) -> dict[str, Any]:
    """A node of a scene."""
    amounts = quantities(of.allocatable)
    taints = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in of.taints]
    made: dict[str, Any] = node(
        of.name, amounts["cpu"], amounts["memory"], labels=dict(of.labels), taints=taints,
        extended=extended(of.allocatable)
    )  # fmt: skip
    if of.unschedulable:
        made["spec"]["unschedulable"] = True
    return made


def pod_manifest(name: str, of: PodSet) -> dict[str, Any]:
    """A pod of a scene, for kube-scheduler."""
    what, amounts = of.pod_class, quantities(of.pod_class.requests)
    spec: dict[str, Any] = {"nodeSelector": dict(what.node_selector)}
    if what.priority:
        spec["priorityClassName"] = f"priority-{what.priority}"
    if what.tolerations:
        spec["tolerations"] = [
            {"key": each.key, "operator": each.operator, "value": each.value, "effect": each.effect}
            for each in what.tolerations
        ]
    if what.preferred_affinity:
        preferred = [
            {
                "weight": term.weight,
                "preference": {
                    "matchExpressions": [
                        {"key": each.key, "operator": each.operator, "values": list(each.values)}
                        for each in term.term.expressions
                    ]
                },
            }
            for term in what.preferred_affinity
        ]
        spec["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    made: dict[str, Any] = pod(
        name, amounts["cpu"], amounts["memory"], "demo", "default-scheduler",
        extended=extended(what.requests), **spec
    )  # fmt: skip
    return made


async def wait_for_nodes(api: Api, names: Sequence[str]) -> None:
    """Returns once kube-scheduler places pods on each of these nodes: its watches of nodes and of pods are separate."""
    probes = []
    for name in names:
        field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [field]}}
        probes.append(
            pod(
                f"probe-{name}",
                namespace="demo",
                scheduler="default-scheduler",
                tolerations=[{"operator": "Exists"}],
                affinity={"nodeAffinity": required},
            )
        )
    await api.create_many(probes)
    for probe in probes:
        await api.wait_for(object_path(probe), lambda each: each["spec"].get("nodeName"))
    await delete_all(api, PODS)


async def delete_all(api: Api, path: str) -> None:
    """Deletes a collection; returns once it is empty."""
    await api.delete(path, gracePeriodSeconds="0")
    await api.wait_for(path, lambda page: not page["items"])


def judged(manifest: Mapping[str, Any]) -> bool:
    """Whether kube-scheduler has given the pod a node, or said that there is none."""
    told = {each["type"]: each["status"] for each in manifest["status"].get("conditions", ())}
    return bool(manifest["spec"].get("nodeName")) or told.get("PodScheduled") == "False"


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.title)
async def test_the_claim_holds_against_the_real_kube_scheduler(api: Api, scene: Scene) -> None:
    """Pods that come one after the other wait as the column says, and the scene's claim can be made of them too."""
    compared = compare(scene)
    nodes = [node_manifest(each) for each in scene.nodes]
    await api.create_many(nodes)
    await wait_for_nodes(api, [each.name for each in scene.nodes])
    sets = {each.name: each for each in scene.sets}
    in_turn = sorted(scene.snapshot().pending, key=lambda each: (-each.pod_class.priority, each.created))
    made = [pod_manifest(each.key.removeprefix("demo/"), sets[scene.row(each.key)]) for each in in_turn]
    cells: dict[str, dict[str, int]] = {name: {} for name in sets}
    for each, manifest in zip(in_turn, made, strict=True):
        await api.create(manifest)
        seen = await api.wait_for(object_path(manifest), judged)
        cell, home = cells[scene.row(each.key)], seen["spec"].get("nodeName", "")
        cell[home] = cell.get(home, 0) + 1
    await delete_all(api, PODS)
    await delete_all(api, "/api/v1/nodes")
    real = SceneResult(cells)
    assert {name: real.waiting(name) for name in sets} == {name: compared.one_by_one.waiting(name) for name in sets}
    assert scene.claim(compared.thalweg, real)
