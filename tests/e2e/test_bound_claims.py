"""Pods with volumes in delivery Binder: their claims get their volumes, then the pods are bound.

The PersistentVolume controller is that of kube-controller-manager; the provisioner is played by the test.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.cluster_scenario import ClusterScenario
from support.operator import until
from support.replicas import running_replicas
from thalweg_controlplane import Api, ApiError, ControlPlane
from thalweg_controlplane.client.objects import object_path

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: KWOK keeps the nodes ready, however long a test takes: nodes without a kubelet get taints.
PLANE = {"controller_manager": True, "kwok": True}
SELECTED = "volume.kubernetes.io/selected-node"
MADE = "csi.example.com"


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def classes(scene: ClusterScenario) -> AsyncIterator[None]:
    """A class of volumes that are there, and one of volumes that are provisioned. All volumes are gone after a test."""
    made = [storage_class("local", "kubernetes.io/no-provisioner"), storage_class("made", MADE)]
    await scene.api.create_many(made)
    yield
    for each in made:
        await scene.api.delete(object_path(each))
    for pod in await scene.pods():
        with suppress_gone():  # KWOK, or its controller, was quicker
            await scene.api.delete(scene.path(pod["metadata"]["name"]))
    for path in (f"/api/v1/namespaces/{scene.namespace}/persistentvolumeclaims", "/api/v1/persistentvolumes"):
        for each in await scene.api.list(path):
            name = each["metadata"]["name"]
            await scene.api.delete(f"{path}/{name}")
            await until(
                lambda path=path, name=name: gone(scene, f"{path}/{name}"), 60, lambda name=name: f"{name} to go"
            )


@contextmanager
def suppress_gone() -> Iterator[None]:
    """An object that is to be deleted may be gone."""
    try:
        yield
    except ApiError as error:
        if error.status != 404:
            raise


async def gone(scene: ClusterScenario, path: str) -> bool:
    """A finalizer that comes back while we take it off keeps an object for a while."""
    try:
        await scene.api.patch(path, {"metadata": {"finalizers": None}})
    except ApiError as error:
        return error.status == 404
    return False


def storage_class(name: str, provisioner: str) -> dict[str, Any]:
    return {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}  # fmt: skip


def volume(name: str, size: str, *nodes: str, **spec: Any) -> dict[str, Any]:
    reach = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}]}
    spec = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
            "local": {"path": f"/{name}"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [reach]}},
            **spec}  # fmt: skip
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def claim(scene: ClusterScenario, name: str, size: str = "1Gi", of: str = "local") -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": of, "resources": {"requests": {"storage": size}}}
    metadata = {"name": name, "namespace": scene.namespace}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def mounted(*names: str) -> list[dict[str, Any]]:
    return [{"name": f"v{place}", "persistentVolumeClaim": {"claimName": name}} for place, name in enumerate(names)]


async def volume_of(scene: ClusterScenario, name: str) -> str:
    """The volume that a claim is bound to."""
    bound = await scene.api.wait_for(
        object_path(claim(scene, name)), lambda each: each["status"].get("phase") == "Bound"
    )
    return str(bound["spec"]["volumeName"])


async def selected(scene: ClusterScenario, name: str, *, not_on: str = "") -> str:
    """The node that a volume is to be provisioned for."""

    def node(each: dict[str, Any]) -> str:
        chosen = each["metadata"].get("annotations", {}).get(SELECTED, "")
        return str(chosen) if chosen != not_on else ""

    return node(await scene.api.wait_for(object_path(claim(scene, name)), lambda each: bool(node(each))))


def scheduled(pod: dict[str, Any]) -> dict[str, Any]:
    """The condition PodScheduled of a pod."""
    (condition,) = (each for each in pod["status"]["conditions"] if each["type"] == "PodScheduled")
    return dict(condition)


async def provision(scene: ClusterScenario, name: str, node: str) -> None:
    """As a provisioner does: a volume on the node, kept for the claim."""
    known = await scene.api.get(object_path(claim(scene, name)))
    kept = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": scene.namespace, "name": name,
            "uid": known["metadata"]["uid"]}  # fmt: skip
    made = volume(f"made-{name}", "1Gi", node, storageClassName="made", claimRef=kept)
    await scene.api.create(made)


async def test_the_smallest_volume_that_will_do(scene: ClusterScenario) -> None:
    """Where there is room, and a volume."""
    await scene.nodes("a", "b", cpu="2")
    await scene.api.create_many(
        [volume("large", "9Gi", "b"), volume("enough", "5Gi", "b"), volume("small", "1Gi", "a")]
    )
    await scene.api.create(claim(scene, "data", "2Gi"))
    await scene.create("p", "1", volumes=mounted("data"))
    assert await scene.nodes_of("p") == {"p": "b"}
    assert await volume_of(scene, "data") == "enough"


async def test_pods_of_one_round_never_get_one_volume(scene: ClusterScenario) -> None:
    """A StatefulSet whose pods all come at once: each gets a volume of its own; where there is none its pod waits."""
    names = ("a", "b", "c")
    await scene.nodes(*names, cpu="64")
    await scene.api.create_many([volume(f"v-{node}-{n}", "1Gi", node) for node in names for n in range(3)])
    template = {"metadata": {"labels": {"app": "db"}}, "spec": scene.pod("t", "1")["spec"]}
    claims = [{"metadata": {"name": "data"}, "spec": claim(scene, "data")["spec"]}]
    await scene.api.create(
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": scene.namespace},
         "spec": {"serviceName": "db", "replicas": 10, "podManagementPolicy": "Parallel",
                  "selector": {"matchLabels": {"app": "db"}}, "template": template, "volumeClaimTemplates": claims}}
    )  # fmt: skip

    async def placed() -> list[dict[str, Any]]:
        return [each for each in await scene.pods() if each["spec"].get("nodeName")]

    async def all_but_one() -> bool:
        return len(await placed()) == 9

    await until(all_but_one, 90, lambda: "nine pods to be placed")
    used = {}
    for pod in await placed():
        name = await volume_of(scene, f"data-{pod['metadata']['name']}")
        assert name.startswith(f"v-{pod['spec']['nodeName']}-")
        used[name] = pod["metadata"]["name"]
    assert len(used) == 9
    (left,) = {each["metadata"]["name"] for each in await scene.pods()} - set(used.values())
    await scene.reason_of(left, "didn't find available persistent volumes to bind")
    await scene.api.create(volume("one-more", "1Gi", "b"))
    assert await scene.node_of(left) == "b"
    await scene.api.delete(f"/apis/apps/v1/namespaces/{scene.namespace}/statefulsets/db")


async def test_a_volume_is_provisioned_on_the_planned_node(scene: ClusterScenario) -> None:
    """The claim names the node; the pod is bound once its claim is, and not before."""
    await scene.nodes("a", cpu="1")
    await scene.nodes("b", cpu="64")
    await scene.api.create(claim(scene, "data", of="made"))
    await scene.create("p", "2", volumes=mounted("data"))
    assert await selected(scene, "data") == "b"
    awaited = f'persistentvolumeclaim "data" is not bound yet (provisioner {MADE})'
    assert await scene.reason_of("p", awaited) == f"its volumes on b are not ready: {awaited}"
    assert scheduled(await scene.get("p"))["reason"] == "WaitingForVolumes"
    await provision(scene, "data", "b")
    assert await scene.node_of("p") == "b"
    assert scheduled(await scene.get("p"))["status"] == "True"


async def test_a_provisioner_that_refuses(scene: ClusterScenario) -> None:
    """It removes the annotation: the pod is planned anew, to another node."""
    await scene.nodes("a", "b", cpu="8")
    await scene.api.create(claim(scene, "data", of="made"))
    await scene.create("p", "1", volumes=mounted("data"))
    first = await selected(scene, "data")
    await scene.api.patch(object_path(claim(scene, "data")), {"metadata": {"annotations": {SELECTED: None}}})
    second = await selected(scene, "data", not_on=first)
    assert {first, second} == {"a", "b"}
    await provision(scene, "data", second)
    assert await scene.node_of("p") == second


async def test_a_provisioner_that_refuses_every_node(scene: ClusterScenario) -> None:
    """The pod is tried elsewhere, then it pauses; it is told who refuses, and goes as soon as one node will do."""
    await scene.nodes("a", "b", cpu="8")
    path = object_path(claim(scene, "data"))
    await scene.api.create(claim(scene, "data", of="made"))
    await scene.create("p", "1", volumes=mounted("data"))
    tried = []
    for _ in range(5):
        tried.append(await selected(scene, "data"))
        await scene.api.patch(path, {"metadata": {"annotations": {SELECTED: None}}})
    assert set(tried) == {"a", "b"}
    await scene.reason_of("p", f"(provisioner {MADE}); the Events of the claim say why")
    assert scheduled(await scene.get("p"))["reason"] == "BackingOff"
    last = await selected(scene, "data")
    await provision(scene, "data", last)
    assert await scene.node_of("p") == last


async def test_a_leader_that_is_killed_meanwhile(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path
) -> None:
    """One claim of a gang is bound, the other waits: the standby waits for it on the same node, and binds both pods."""
    await scene.operator.stop()
    gang = {"scheduling.thalweg/gang": "g", "scheduling.thalweg/gang-min-member": "2"}
    await scene.api.create_many([claim(scene, name, of="made") for name in ("one", "two")])
    config = scene.operator.kubeconfig
    try:
        async with running_replicas(plane[1], [config, config], tmp_path) as replicas:
            leader = await replicas.leader()
            await scene.nodes("a", "b", cpu="8")
            for name in ("one", "two"):
                await scene.create(name, "1", volumes=mounted(name), annotations=gang)
            nodes = {name: await selected(scene, name) for name in ("one", "two")}
            await leader.kill()
            await replicas.give_away()
            await provision(scene, "one", nodes["one"])
            await volume_of(scene, "one")
            assert await replicas.leader(leader) is not leader
            await scene.reason_of("two", f'its volumes on {nodes["two"]} are not ready: persistentvolumeclaim "two"')
            assert not any(each["spec"].get("nodeName") for each in await scene.pods())
            assert {name: await selected(scene, name) for name in ("one", "two")} == nodes
            await provision(scene, "two", nodes["two"])
            assert await scene.nodes_of("one", "two") == nodes
    finally:
        await scene.operator.start()


async def test_an_operator_that_is_killed_meanwhile(scene: ClusterScenario) -> None:
    """Nothing is lost: the next one waits for the same claim on the same node, and binds the pod."""
    await scene.nodes("a", "b", cpu="8")
    await scene.api.create(claim(scene, "data", of="made"))
    await scene.create("p", "1", volumes=mounted("data"))
    chosen = await selected(scene, "data")
    await scene.operator.kill()
    await scene.operator.start()
    await provision(scene, "data", chosen)
    assert await scene.node_of("p") == chosen
    assert await selected(scene, "data") == chosen


async def test_all_claims_of_a_gang_then_all_bindings(scene: ClusterScenario) -> None:
    """While one claim of a gang is not bound, none of its pods is."""
    await scene.nodes("a", "b", cpu="8")
    gang = {"scheduling.thalweg/gang": "g", "scheduling.thalweg/gang-min-member": "2"}
    await scene.api.create_many([claim(scene, name, of="made") for name in ("one", "two")])
    for name in ("one", "two"):
        await scene.create(name, "1", volumes=mounted(name), annotations=gang)
    nodes = {name: await selected(scene, name) for name in ("one", "two")}
    await provision(scene, "one", nodes["one"])
    await volume_of(scene, "one")
    assert not any(each["spec"].get("nodeName") for each in await scene.pods())
    await provision(scene, "two", nodes["two"])
    assert await scene.nodes_of("one", "two") == nodes


async def test_a_gang_whose_operator_is_killed_meanwhile(scene: ClusterScenario) -> None:
    """One claim is bound, the other is not: the next operator waits for the other, and binds both pods."""
    await scene.nodes("a", "b", cpu="8")
    gang = {"scheduling.thalweg/gang": "g", "scheduling.thalweg/gang-min-member": "2"}
    await scene.api.create_many([claim(scene, name, of="made") for name in ("one", "two")])
    for name in ("one", "two"):
        await scene.create(name, "1", volumes=mounted(name), annotations=gang)
    nodes = {name: await selected(scene, name) for name in ("one", "two")}
    await scene.operator.kill()
    await provision(scene, "one", nodes["one"])
    await volume_of(scene, "one")
    await scene.operator.start()
    await scene.wait_for_round("barrier")
    placed = {each["metadata"]["name"] for each in await scene.pods() if each["spec"].get("nodeName")}
    assert placed.isdisjoint(nodes)
    await provision(scene, "two", nodes["two"])
    assert await scene.nodes_of("one", "two") == nodes


async def test_a_volume_that_was_kept_before_a_crash(scene: ClusterScenario) -> None:
    """The operator that kept it for the claim is gone: the next one places the pod where the volume is."""
    await scene.nodes("a", "b", cpu="8")
    await scene.operator.kill()
    made = await scene.api.create(claim(scene, "data"))
    kept = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": scene.namespace, "name": "data",
            "uid": made["metadata"]["uid"]}  # fmt: skip
    await scene.api.create_many([volume("small", "1Gi", "a"), volume("kept", "9Gi", "b", claimRef=kept)])
    await scene.create("p", "1", volumes=mounted("data"))
    await scene.operator.start()
    assert await scene.node_of("p") == "b"
    assert await volume_of(scene, "data") == "kept"


async def test_a_disk_that_two_pods_name(scene: ClusterScenario) -> None:
    """Pods of one round that mount a disk beside each other: one of them on a node."""
    await scene.nodes("a", "b", cpu="8")
    disk = [{"name": "d", "iscsi": {"targetPortal": "1.2.3.4", "iqn": "iqn.2001-04.com.example:x", "lun": 0}}]
    await scene.api.create_many([scene.pod(name, "1", volumes=disk) for name in ("p", "q", "r")])
    await until(lambda: _placed(scene, 2), 60, lambda: "two of them to be placed")
    where = {each["spec"].get("nodeName") for each in await scene.pods()}
    assert where == {"a", "b", None}
    (left,) = [each["metadata"]["name"] for each in await scene.pods() if not each["spec"].get("nodeName")]
    await scene.reason_of(left, "node(s) had no available disk")


async def _placed(scene: ClusterScenario, count: int) -> bool:
    return sum(1 for each in await scene.pods() if each["spec"].get("nodeName")) == count
