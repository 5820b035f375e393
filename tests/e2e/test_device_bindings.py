"""Pods with resource claims in delivery Binder: claims get their devices, devices get ready, then pods are bound.

The driver is played here: it publishes slices, and says of allocated devices that they are ready or never will be.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from support.cluster_scenario import ClusterScenario
from support.device_driver import (
    API,
    DRIVER,
    allocated,
    allocated_are,
    claims,
    claims_path,
    devices_come_free,
    publish,
    report,
)
from support.gang_scenarios import members
from support.operator import Operator, running_operator, until
from support.proxy import Forward, proxied
from support.replicas import running_replicas
from thalweg_controlplane import Api, ApiError, ControlPlane
from thalweg_controlplane.client.api import MERGE_PATCH
from thalweg_controlplane.client.objects import object_path

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"controller_manager": True, "kwok": True}
#: Seconds that a driver has, and what is left over stays.
TIMEOUT, LEFT = 6, 10
SELECTED = "volume.kubernetes.io/selected-node"
FINALIZER = "resource.kubernetes.io/delete-protection"
#: Of a device that its driver makes ready once it is allocated.
LATER = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
ONE = [{"name": "gpu", "resourceClaimTemplateName": "one"}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(account: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    """One that gives drivers little time."""
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    async with running_operator(account, log, extender=("--device-timeout", str(TIMEOUT))) as operator:
        yield operator


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def classes(scene: ClusterScenario) -> AsyncIterator[None]:
    """A class of devices, and a template for claims of one; slices go at the end."""
    expression = f'device.driver == "{DRIVER}"'
    config = [{"opaque": {"driver": DRIVER, "parameters": {"kind": "Of the class"}}}]
    spec = {"selectors": [{"cel": {"expression": expression}}], "config": config}
    gpu = {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": spec}
    template = {"apiVersion": API, "kind": "ResourceClaimTemplate",
                "metadata": {"name": "one", "namespace": scene.namespace},
                "spec": {"spec": claim_spec()}}  # fmt: skip
    await scene.api.create_many([gpu, template])
    yield
    await scene.clean_up()
    await scene.api.delete(object_path(gpu))
    await scene.api.delete(f"/apis/{API}/resourceslices")


def claim_spec(count: int = 1) -> dict[str, Any]:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}}
    return {"devices": {"requests": [request]}}


async def create_claims(scene: ClusterScenario, *names: str) -> None:
    """Claims that pods name themselves."""
    for name in names:
        metadata = {"name": name, "namespace": scene.namespace, "labels": {"name": name}}
        await scene.api.create({"apiVersion": API, "kind": "ResourceClaim", "metadata": metadata, "spec": claim_spec()})


def naming(claim: str) -> list[dict[str, str]]:
    return [{"name": "gpu", "resourceClaimName": claim}]


async def test_pods_get_devices_and_give_them_back(scene: ClusterScenario) -> None:
    """As kube-scheduler writes it. A fourth pod is told, and gets what comes free."""
    await scene.nodes("a", "b", "c", cpu="8")
    await publish(scene, "a", 1)
    await publish(scene, "b", 2)
    names = ["p0", "p1", "p2"]
    await scene.api.create_many([scene.pod(name, resourceClaims=ONE) for name in names])
    assert sorted((await scene.nodes_of(*names)).values()) == ["a", "b", "b"]
    assert await allocated(scene) == [("a", "gpu-0"), ("b", "gpu-0"), ("b", "gpu-1")]
    pods = {pod["metadata"]["uid"]: pod for pod in await scene.pods()}
    for claim in await claims(scene):
        (consumer,) = claim["status"]["reservedFor"]
        pod = pods[consumer["uid"]]
        assert (consumer["resource"], consumer["name"]) == ("pods", pod["metadata"]["name"])
        assert FINALIZER in claim["metadata"]["finalizers"]
        allocation = claim["status"]["allocation"]
        assert allocation["devices"]["results"][0]["pool"] == pod["spec"]["nodeName"]
        assert allocation["devices"]["config"][0]["opaque"]["parameters"] == {"kind": "Of the class"}
        assert allocation["allocationTimestamp"]
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [pod["spec"]["nodeName"]]}]}]
        assert allocation["nodeSelector"] == {"nodeSelectorTerms": terms}
    await scene.create("p3", resourceClaims=ONE)
    await scene.reason_of("p3", "0/3 nodes are available: 3 cannot allocate all claims")
    await scene.delete("p0")
    await scene.node_of("p3")
    assert len(await allocated(scene)) == 3


async def test_pods_share_a_claim(scene: ClusterScenario) -> None:
    """One allocates it, the others of its round and later ones are added."""
    await scene.nodes("a", "b", cpu="8")
    await publish(scene, "a", 2)
    await publish(scene, "b", 2)
    await create_claims(scene, "shared")
    names = [f"p{number}" for number in range(4)]
    await scene.api.create_many([scene.pod(name, resourceClaims=naming("shared")) for name in names])
    (node,) = set((await scene.nodes_of(*names)).values())
    await scene.create("late", resourceClaims=naming("shared"))
    assert await scene.node_of("late") == node
    (claim,) = await claims(scene)
    assert sorted(each["name"] for each in claim["status"]["reservedFor"]) == ["late", *names]
    assert len(await allocated(scene)) == 1


async def test_a_gang_has_all_claims_or_none(scene: ClusterScenario) -> None:
    """One claim is refused: those of the others come free, and no pod is bound. Then all are."""
    await scene.nodes("a", "b", cpu="8")
    await publish(scene, "a", 2)
    await publish(scene, "b", 2)
    status = {"apiGroups": ["resource.k8s.io"], "apiVersions": ["*"], "resources": ["resourceclaims/status"]}
    allowed = 'object.metadata.name != "c2" || !has(object.status.allocation)'
    denies = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-allocation"},
        "spec": {
            "matchConstraints": {"resourceRules": [{**status, "operations": ["UPDATE"]}]},
            "validations": [{"expression": allowed, "message": "not this one"}],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-allocation"},
        "spec": {"policyName": "no-allocation", "validationActions": ["Deny"]},
    }
    await scene.api.create_many([denies, binding])
    await create_claims(scene, "c0", "c1", "c2")
    path = f"/apis/{API}/namespaces/{scene.namespace}/resourceclaims/c2/status"
    probe = {"status": {"allocation": {"devices": {}}}}

    async def in_effect() -> bool:
        try:
            await scene.api.request("PATCH", path, probe, params={"dryRun": "All"}, content_type=MERGE_PATCH)
        except ApiError as error:
            return "not this one" in str(error)
        return False

    await until(in_effect, 30, lambda: "the refusal to be in effect")
    pods = members(scene, "g", 3)
    for number, pod in enumerate(pods):
        pod["spec"]["resourceClaims"] = naming(f"c{number}")
    await scene.api.create_many(pods)
    await scene.reason_of(pods[2]["metadata"]["name"], "could not be reserved", "not this one")
    await allocated_are(scene)
    assert not any(pod["spec"].get("nodeName") for pod in await scene.pods())
    await scene.api.delete(object_path(binding))
    await scene.api.delete(object_path(denies))
    await scene.nodes_of(*(pod["metadata"]["name"] for pod in pods))
    assert len(set(await allocated(scene))) == 3


async def test_a_gang_of_a_device_and_a_volume(scene: ClusterScenario) -> None:
    """No pod is bound before both are there. The device comes free while no volume is provisioned."""
    await scene.nodes("a", cpu="8")
    await publish(scene, "a", 1)
    storage_class = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "made"},
                     "provisioner": "csi.example.com", "volumeBindingMode": "WaitForFirstConsumer"}  # fmt: skip
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "made", "resources": {"requests": {"storage": "1Gi"}}}
    data = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec,
            "metadata": {"name": "data", "namespace": scene.namespace}}  # fmt: skip
    await scene.api.create_many([storage_class, data])
    pods = members(scene, "g", 2)
    pods[0]["spec"]["resourceClaims"] = ONE
    pods[1]["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    await scene.api.create_many(pods)

    def is_selected(known: dict[str, Any]) -> bool:
        return SELECTED in known["metadata"].get("annotations", {})

    await scene.api.wait_for(object_path(data), is_selected)
    await allocated_are(scene, ("a", "gpu-0"))
    assert not any(pod["spec"].get("nodeName") for pod in await scene.pods())
    since = (await scene.api.get(claims_path(scene)))["metadata"]["resourceVersion"]
    await scene.api.patch(object_path(data), {"metadata": {"annotations": {SELECTED: None}}})
    await scene.reason_of("g-1", "provisioned for")  # by the writer of claims, or by the round after it
    await devices_come_free(scene, since)
    known = await scene.api.wait_for(object_path(data), is_selected)
    kept = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": scene.namespace, "name": "data",
            "uid": known["metadata"]["uid"]}  # fmt: skip
    made = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "made",
            "hostPath": {"path": "/data"}, "claimRef": kept}  # fmt: skip
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "made-data"}, "spec": made}
    await scene.api.create(volume)
    assert await scene.nodes_of("g-0", "g-1") == {"g-0": "a", "g-1": "a"}
    assert await allocated(scene) == [("a", "gpu-0")]
    for gone in (volume, storage_class):
        await scene.api.patch(object_path(gone), {"metadata": {"finalizers": None}})
        await scene.api.delete(object_path(gone))


async def test_a_device_that_gets_ready(scene: ClusterScenario) -> None:
    """Its pod waits with a reason, and is bound once the driver says so."""
    await scene.nodes("a", cpu="8")
    await publish(scene, "a", 1, **LATER)
    await scene.create("p", resourceClaims=ONE)
    await scene.reason_of("p", "its devices on a are not ready: gpu.example.com/a/gpu-0 (ready)")
    await scene.api.wait_for(scene.path("p"), lambda each: each["status"].get("nominatedNodeName") == "a")
    await report(scene, "ready")
    assert await scene.node_of("p") == "a"


async def test_a_device_that_never_gets_ready(scene: ClusterScenario) -> None:
    """Its driver says so, or it takes too long: it is given back, and its pod tries again, here on another node."""
    await scene.nodes("a", cpu="8")
    await publish(scene, "a", 1, **LATER)
    await scene.create("p", resourceClaims=ONE)
    await allocated_are(scene, ("a", "gpu-0"))
    await report(scene, "broken")
    await scene.reason_of("p", "a device will not get ready: gpu.example.com/a/gpu-0 (broken, Driver: says so)")
    await scene.reason_of("p", f"devices were not ready within {TIMEOUT} s: gpu.example.com/a/gpu-0 (ready)")
    await publish(scene, "a", 0)
    await allocated_are(scene)
    await scene.nodes("b", cpu="8")
    await publish(scene, "b", 1)
    assert await scene.node_of("p") == "b"


async def test_killed_between_allocation_and_binding(scene: ClusterScenario) -> None:
    """The next start takes it up. What no pod can use comes free."""
    await scene.nodes("a", "b", cpu="8")
    for node in ("a", "b"):
        await publish(scene, node, 1, **LATER)
    await scene.api.create_many([scene.pod(name, resourceClaims=ONE) for name in ("p", "q")])
    await allocated_are(scene, ("a", "gpu-0"), ("b", "gpu-0"))
    await scene.operator.kill()
    await scene.api.patch("/api/v1/nodes/b", {"spec": {"unschedulable": True}})
    await report(scene, "ready")
    await scene.operator.start()
    await allocated_are(scene, ("a", "gpu-0"), within=LEFT + 30)
    nodes = [pod["spec"].get("nodeName", "") for pod in await scene.pods()]
    assert sorted(nodes) == ["", "a"]
    await scene.api.patch("/api/v1/nodes/b", {"spec": {"unschedulable": False}})
    await allocated_are(scene, ("a", "gpu-0"), ("b", "gpu-0"))
    await report(scene, "ready")
    await scene.nodes_of("p", "q")


async def test_taken_over(scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path) -> None:
    """A standby takes up what the leader allocated: nothing is allocated twice or lost."""
    await scene.operator.stop()
    await scene.nodes("a", cpu="8")
    await publish(scene, "a", 2, **LATER)
    config = scene.operator.kubeconfig
    async with running_replicas(plane[1], [config, config], tmp_path) as replicas:
        leader = await replicas.leader()
        await replicas.standby()
        await scene.create("p", resourceClaims=ONE)
        await allocated_are(scene, ("a", "gpu-0"))
        (before,) = [claim["status"]["allocation"] for claim in await claims(scene)]
        await leader.kill()
        assert await replicas.leader(leader) is not leader
        await report(scene, "ready")
        assert await scene.node_of("p") == "a"
        (after,) = [claim["status"]["allocation"] for claim in await claims(scene)]
        assert after == before
    await scene.operator.start()


async def test_an_urgent_pod_gets_a_device(scene: ClusterScenario) -> None:
    """One pod leaves for it, and no second one, however long the devices of the first take to come free."""
    await scene.priority_class("urgent", 1000)
    await scene.nodes("a", "b", cpu="8")
    await publish(scene, "a", 1)
    await publish(scene, "b", 1)
    await scene.api.create_many([scene.pod(name, resourceClaims=ONE) for name in ("p", "q")])
    await scene.nodes_of("p", "q")
    for claim in await claims(scene):
        path = f"/apis/{API}/namespaces/{scene.namespace}/resourceclaims/{claim['metadata']['name']}"
        await scene.api.patch(
            path, {"metadata": {"finalizers": [*claim["metadata"]["finalizers"], "example.com/slow"]}}
        )
    await scene.create("u", resourceClaims=ONE, priorityClassName="urgent")

    async def one_left() -> bool:
        return len(await scene.pods()) == 2

    await until(one_left, 60, lambda: "a victim to be gone")
    await scene.wait_for_round("later")
    assert {pod["metadata"]["name"] for pod in await scene.pods()} & {"p", "q"}
    for claim in await claims(scene):
        path = f"/apis/{API}/namespaces/{scene.namespace}/resourceclaims/{claim['metadata']['name']}"
        kept = [each for each in claim["metadata"].get("finalizers", []) if each != "example.com/slow"]
        await scene.api.patch(path, {"metadata": {"finalizers": kept}})
    await scene.node_of("u")
    assert len(set(await allocated(scene))) == 2
    assert len([pod for pod in await scene.pods() if pod["metadata"]["name"] in "pq"]) == 1


async def take(scene: ClusterScenario, claim: str, node: str, device: str) -> None:
    """Another scheduler gives a claim a device."""
    path = f"/apis/{API}/namespaces/{scene.namespace}/resourceclaims/{claim}"
    await scene.api.patch(path, {"metadata": {"finalizers": [FINALIZER]}})
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    results = [{"request": "r", "driver": DRIVER, "pool": node, "device": device}]
    allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]}}
    await scene.api.patch(f"{path}/status", {"status": {"allocation": allocation}})


async def test_an_idle_claim_is_freed(scene: ClusterScenario) -> None:
    """Another scheduler allocated it on a node that is cordoned now: its pod has a device of the other node.

    While another pod reserves it nobody frees it.
    """
    await scene.nodes("a", "b", cpu="8")
    for node in ("a", "b"):
        await publish(scene, node, 1)
    await create_claims(scene, "c")
    await take(scene, "c", "a", "gpu-0")
    path = f"/apis/{API}/namespaces/{scene.namespace}/resourceclaims/c/status"
    another = {"resource": "pods", "name": "another", "uid": "another"}
    await scene.create("another", scheduler="nobody", resourceClaims=naming("c"))
    another["uid"] = (await scene.get("another"))["metadata"]["uid"]
    await scene.api.patch(path, {"status": {"reservedFor": [another]}})
    await scene.api.patch("/api/v1/nodes/a", {"spec": {"unschedulable": True}})
    await scene.create("p", resourceClaims=naming("c"))
    told = await scene.reason_of("p", "1 resourceclaim not available on the node")
    assert "freed" not in str(told)
    await allocated_are(scene, ("a", "gpu-0"))
    assert condition_of(await scene.get("p"))["reason"] == "DynamicResources"
    await scene.api.patch(path, {"status": {"reservedFor": None}})
    assert await scene.node_of("p") == "b"
    assert await allocated(scene) == [("b", "gpu-0")]


def condition_of(pod: dict[str, Any]) -> dict[str, Any]:
    (condition,) = (each for each in pod["status"]["conditions"] if each["type"] == "PodScheduled")
    return dict(condition)


@pytest.mark.parametrize("theirs", ["c", "another"])
async def test_others_were_faster(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path, theirs: str
) -> None:
    """They take the claim: their allocation stays, and the pod goes where it is. They take the device: ours goes."""
    await scene.operator.stop()
    await scene.nodes("a", "b", cpu="8")
    await publish(scene, "a", 1)
    await create_claims(scene, "c", "another")
    taken: list[str] = []

    async def disturb(request: web.Request, forward: Forward) -> web.StreamResponse:
        """Between our first and our second write: that one has not reached the API server yet."""
        if request.method == "PATCH" and request.path.endswith("/resourceclaims/c/status") and not taken:
            taken.append(theirs)
            await take(scene, theirs, "b" if theirs == "c" else "a", "gpu-0")
        return await forward(request)

    async with proxied(*plane, tmp_path) as proxy:
        proxy.disturbance = disturb
        async with running_operator(proxy.kubeconfig, tmp_path / "operator.log") as operator:
            await scene.create("p", resourceClaims=naming("c"))
            if theirs == "c":
                assert await scene.node_of("p") == "b"
                assert await allocated(scene) == [("b", "gpu-0")]
                assert "allocated otherwise in the meantime" in operator.log
            else:
                await scene.reason_of("p", "0/2 nodes are available: 2 cannot allocate all claims")
                await allocated_are(scene, ("a", "gpu-0"))
                (holder,) = [each for each in await claims(scene) if each["status"].get("allocation")]
                assert holder["metadata"]["name"] == "another"
            assert taken == [theirs]
    await scene.operator.start()
