"""Pods whose extended resource a DeviceClass backs, in delivery Binder: by devices, or by what their node offers."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.cluster_scenario import ClusterScenario
from support.device_driver import API, DRIVER, allocated, allocated_are, claims, publish, report
from support.gang_scenarios import members
from support.operator import running_operator, until
from support.proxy import ProxiedRequest, proxied
from thalweg_controlplane import Api, ApiError, ControlPlane
from thalweg_controlplane.client.objects import object_path

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"scheduler": True, "controller_manager": True, "kwok": True}
RESOURCE, IMPLICIT = "example.com/h100", "deviceclass.resource.kubernetes.io/h100"
ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
ONE = {RESOURCE: "1"}
#: Of a device that its driver makes ready once it is allocated.
LATER = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
#: Seconds that what is left over stays.
LEFT = 10


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def device_class(scene: ClusterScenario) -> AsyncIterator[None]:
    """A class of devices that backs a resource; slices go at the end."""
    expression = f'device.driver == "{DRIVER}"'
    spec = {"selectors": [{"cel": {"expression": expression}}], "extendedResourceName": RESOURCE}
    gpu = {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": "h100"}, "spec": spec}
    await scene.api.create(gpu)
    yield
    await scene.clean_up()
    await scene.api.delete(object_path(gpu))
    await scene.api.delete(f"/apis/{API}/resourceslices")


async def claim_of(scene: ClusterScenario, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The claim that was made for a pod, and what the pod's status says of it."""
    pod = await scene.get(name)
    (made,) = [
        claim
        for claim in await claims(scene)
        if claim["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    ]
    status = pod["status"]["extendedResourceClaimStatus"]
    assert status["resourceClaimName"] == made["metadata"]["name"]
    return made, status


async def none_left(scene: ClusterScenario) -> None:
    """Waits until there is no claim."""

    async def gone() -> bool:
        return await claims(scene) == []

    await until(gone, LEFT + 50, lambda: "no claim to be left")


def containers(*requests: dict[str, str]) -> list[dict[str, Any]]:
    """Containers with these requests."""
    return [
        {"name": f"c{place}", "image": "image", "resources": {"requests": each, "limits": each}}
        for place, each in enumerate(requests)
    ]


async def test_pods_get_devices_or_what_nodes_offer(scene: ClusterScenario) -> None:
    """Each that gets devices has a claim, which goes with it. A fifth pod is told, and gets what comes free."""
    await scene.nodes("a", "b", cpu="8")
    await scene.nodes("c", cpu="8", extended=ONE)
    await publish(scene, "a", 1)
    await publish(scene, "b", 2)
    names = [f"p{number}" for number in range(4)]
    await scene.api.create_many([scene.pod(name, extended=ONE) for name in names])
    where = await scene.nodes_of(*names)
    assert sorted(where.values()) == ["a", "b", "b", "c"]
    assert await allocated(scene) == [("a", "gpu-0"), ("b", "gpu-0"), ("b", "gpu-1")]
    for name, node in where.items():
        if node == "c":
            assert "extendedResourceClaimStatus" not in (await scene.get(name))["status"]
            continue
        made, _ = await claim_of(scene, name)
        assert made["metadata"]["annotations"] == {ANNOTATION: "true"}
        assert [each["name"] for each in made["status"]["reservedFor"]] == [name]
        assert made["status"]["allocation"]["devices"]["results"][0]["pool"] == node
    await scene.create("p4", extended={IMPLICIT: "1"})
    await scene.reason_of("p4", "0/3 nodes are available: 3 cannot allocate all claims")
    await scene.delete(next(name for name, node in where.items() if node == "b"))
    assert await scene.node_of("p4") == "b"
    assert len(set(await allocated(scene))) == 3


async def test_claims_are_as_kube_scheduler_makes_them(scene: ClusterScenario) -> None:
    """Of a pod with init containers, two resources and a claim of its own: requests, owner, status and mappings."""
    await scene.nodes("a", cpu="8")
    await publish(scene, "a", 12)
    exactly = {"deviceClassName": "h100", "allocationMode": "ExactCount", "count": 1}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    own = {"apiVersion": API, "kind": "ResourceClaim"}
    both = {RESOURCE: "1", IMPLICIT: "1", "cpu": "100m"}
    init = [dict(each, name=f"i{place}") for place, each in enumerate(containers({RESOURCE: "3"}, {RESOURCE: "4"}))]
    made = []
    for name, options in {"ours": {}, "theirs": {"scheduler": "default-scheduler"}}.items():
        await scene.api.create({**own, "metadata": {"name": name, "namespace": scene.namespace}, "spec": spec})
        options |= {"containers": containers(both, {"cpu": "100m"}, {RESOURCE: "1"}), "initContainers": init}
        await scene.create(name, resourceClaims=[{"name": "own", "resourceClaimName": name}], **options)
        assert await scene.node_of(name) == "a"
        pod = await scene.get(name)
        (claim,) = [each for each in await claims(scene) if "ownerReferences" in each["metadata"]]
        (owner,) = claim["metadata"]["ownerReferences"]
        assert (owner.pop("name"), owner.pop("uid")) == (name, pod["metadata"]["uid"])
        status = pod["status"]["extendedResourceClaimStatus"]
        assert status.pop("resourceClaimName") == claim["metadata"]["name"]
        assert claim["metadata"]["name"].startswith(f"{name}-extended-resources-")
        results = claim["status"]["allocation"]["devices"]["results"]
        requested = sorted(each["request"] for each in results)
        annotations, finalizers = claim["metadata"]["annotations"], claim["metadata"]["finalizers"]
        made.append([claim["spec"], owner, status, requested, annotations, finalizers])
        await scene.delete(name)
        await allocated_are(scene)
    assert made[0] == made[1]


async def test_a_node_that_offers_one_of_two_resources(scene: ClusterScenario) -> None:
    """The claim asks for the other one alone."""
    await scene.nodes("a", cpu="8", extended={RESOURCE: "2"})
    await publish(scene, "a", 1)
    await scene.create("p", extended={RESOURCE: "2", IMPLICIT: "1"})
    assert await scene.node_of("p") == "a"
    made, status = await claim_of(scene, "p")
    (request,) = made["spec"]["devices"]["requests"]
    assert request["exactly"]["count"] == 1
    mapping = {"containerName": "main", "resourceName": IMPLICIT, "requestName": request["name"]}
    assert status["requestMappings"] == [mapping]
    assert await allocated(scene) == [("a", "gpu-0")]


async def test_a_gang_has_all_claims_or_none(scene: ClusterScenario) -> None:
    """One claim may not be made: those of the others are deleted, and no pod is bound. Then all are."""
    await scene.nodes("a", "b", cpu="8")
    await publish(scene, "a", 1)
    await publish(scene, "b", 2)
    made = {"apiGroups": ["resource.k8s.io"], "apiVersions": ["*"], "resources": ["resourceclaims"]}
    policy = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "no-claim"}}
    denied = {"expression": '!object.metadata.name.startsWith("g-2-")', "message": "not this one"}
    rules = {"matchConstraints": {"resourceRules": [{**made, "operations": ["CREATE"]}]}, "validations": [denied]}
    denies = {**policy, "kind": "ValidatingAdmissionPolicy", "spec": rules}
    binding = {**policy, "kind": "ValidatingAdmissionPolicyBinding",
               "spec": {"policyName": "no-claim", "validationActions": ["Deny"]}}  # fmt: skip
    await scene.api.create_many([denies, binding])
    exactly = {"deviceClassName": "h100", "allocationMode": "ExactCount", "count": 1}
    probe = {"apiVersion": API, "kind": "ResourceClaim", "metadata": {"name": "g-2-x", "namespace": scene.namespace},
             "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}  # fmt: skip

    async def in_effect() -> bool:
        path = f"/apis/{API}/namespaces/{scene.namespace}/resourceclaims"
        try:
            await scene.api.request("POST", path, probe, params={"dryRun": "All"})
        except ApiError as error:
            return "not this one" in str(error)
        return False

    await until(in_effect, 30, lambda: "the refusal to be in effect")
    pods = members(scene, "g", 3, extended=ONE)
    await scene.api.create_many(pods)
    await scene.reason_of("g-2", "could not be reserved", "not this one")
    await none_left(scene)
    assert not any(pod["spec"].get("nodeName") for pod in await scene.pods())
    await scene.api.delete(object_path(binding))
    await scene.api.delete(object_path(denies))
    await scene.nodes_of("g-0", "g-1", "g-2")
    assert len(set(await allocated(scene))) == 3


async def test_what_a_failed_attempt_left_is_deleted(scene: ClusterScenario) -> None:
    """Its device will not get ready: the claim goes, and the pod takes what another node offers, with no claim."""
    await scene.nodes("a", cpu="8")
    await publish(scene, "a", 1, **LATER)
    await scene.create("p", extended=ONE)
    await scene.reason_of("p", "its devices on a are not ready: gpu.example.com/a/gpu-0 (ready)")
    await publish(scene, "a", 0)
    await report(scene, "broken")
    await scene.reason_of("p", "0/1 nodes are available: 1 cannot allocate all claims")
    await none_left(scene)
    await scene.nodes("c", cpu="8", extended=ONE)
    assert await scene.node_of("p") == "c"
    assert await claims(scene) == []
    assert "extendedResourceClaimStatus" not in (await scene.get("p"))["status"]


async def killed_after(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path, what: str, then: dict[str, Any] | None
) -> None:
    """The operator is killed after a write for the pod p and is started again, once a node came, or none."""
    await scene.operator.stop()
    killed = asyncio.Event()
    async with (
        proxied(*plane, tmp_path) as proxy,
        running_operator(proxy.kubeconfig, tmp_path / "operator.log") as operator,
    ):

        def kill(request: ProxiedRequest) -> bool:
            if killed.is_set() or not is_the_write(what, request):
                return not killed.is_set()
            os.kill(operator.pid, signal.SIGKILL)
            killed.set()
            return False

        proxy.after = kill
        await scene.create("p", extended=ONE)
        await asyncio.wait_for(killed.wait(), 60)
        await operator.kill()
        await killed_state(scene, what)
    if then is not None:
        await scene.api.patch("/api/v1/nodes/a", {"spec": {"unschedulable": True}})
        await scene.nodes("c", cpu="8", **then)
    await scene.operator.start()


def is_the_write(what: str, request: ProxiedRequest) -> bool:
    """Whether a request is the one after which the operator is killed."""
    path = request.path.partition("?")[0]
    if what == "made":
        return request.method == "POST" and path.endswith("/resourceclaims")
    if what == "allocated":
        return "/resourceclaims/" in path and b'"allocation"' in request.body
    return path.endswith("/pods/p/status") and b'"extendedResourceClaimStatus"' in request.body


async def killed_state(scene: ClusterScenario, what: str) -> None:
    """What was there when the operator was killed."""
    (claim,) = await claims(scene)
    assert ("allocation" in claim.get("status", {})) == (what != "made")
    pod = await scene.get("p")
    assert ("extendedResourceClaimStatus" in pod["status"]) == (what == "told")
    assert "nodeName" not in pod["spec"]


@pytest.mark.parametrize("what", ["made", "allocated", "told"])
async def test_killed_between_two_writes(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path, what: str
) -> None:
    """The next start takes the claim up, or makes another once the first is gone; the pod has one device."""
    await scene.nodes("a", cpu="8")
    await publish(scene, "a", 2)
    await killed_after(scene, plane, tmp_path, what, None)
    assert await scene.node_of("p", within=LEFT + 60) == "a"
    made, _ = await claim_of(scene, "p")
    assert [made["metadata"]["name"]] == [claim["metadata"]["name"] for claim in await claims(scene)]
    assert len(await allocated(scene)) == 1


async def test_killed_and_placed_elsewhere(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path
) -> None:
    """On a node that offers the resource: no claim stays, and the pod's status names none."""
    await scene.nodes("a", cpu="8")
    await publish(scene, "a", 1)
    await killed_after(scene, plane, tmp_path, "told", {"extended": ONE})
    assert await scene.node_of("p", within=LEFT + 60) == "c"
    await none_left(scene)
    assert "extendedResourceClaimStatus" not in (await scene.get("p"))["status"]
