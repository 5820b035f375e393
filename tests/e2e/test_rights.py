"""The operator with the rights of rights/ and no others.

They are enough, and each of them is used. Where a file is withheld, its feature is off, pods and log say so, the rest
works, and it comes back.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from support.audit import AuditedRequest, audited, refused
from support.cluster_scenario import POLICIES, ClusterScenario
from support.device_driver import report
from support.operator import Operator, free_address, running_operator, until
from support.parents import install_parents, start_volcano_job
from support.proxy import ApiProxy, proxied
from support.rights import DISCOVERY, Right, files, grant, granted, restore, token, withhold
from support.steering import DelayingProxy, count, gates_in_effect, mutual_tls
from support.viewing import Viewer, answered, view_session
from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.client.objects import object_path
from thalweg_view.callers.access import AUDIENCE

from flowcore.api.kinds import PARENTS, VOLCANO_JOB
from flowcore.api.policies import GROUP, VERSION
from flowcore.api.storage_objects import SELECTED_NODE
from flowcore.model.policies import GATE, SCHEDULER_NAME

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"scheduler": True, "kwok": True}
BREAKS_PLANE = True
STEERED = {"waiting": "Gate"}
#: Kinds that few clusters have.
KINDS = [
    Path(__file__).parent.parent / "support" / name
    for name in ("pod_groups.yaml", "node_topology.yaml", "hyper_nodes.yaml")
]
DEVICES = "resource.k8s.io/v1"
SERVICE, VIEW = "thalweg-extender", "thalweg-view"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/thalweg"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy(plane: tuple[ControlPlane, Api], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiProxy]:
    """To the API server, as the account of rights/.

    The rights that every account has in a new cluster are taken away, so that only those of rights/ count.
    """
    api = plane[1]
    await grant(api)
    await api.delete(LEASE)  # the operator makes it again
    for path in DISCOVERY:
        await api.delete(path)
    for each in (crd for file in KINDS for crd in yaml.safe_load_all(file.read_text())):
        await api.apply(each)
    await install_parents(api, *PARENTS, VOLCANO_JOB)
    metadata = {"name": SERVICE, "namespace": "thalweg-system"}
    ports = [{"name": "extender", "port": 8443}]
    await api.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}})
    viewed = {"name": VIEW, "namespace": "thalweg-system"}
    ports = [{"name": "https", "port": 443}]
    await api.create({"apiVersion": "v1", "kind": "Service", "metadata": viewed, "spec": {"ports": ports}})
    # Of an earlier leader with other addresses: the operator deletes it and makes another.
    await api.create(
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**metadata, "name": f"{SERVICE}-leader"},
            "addressType": "IPv6",
            "endpoints": [],
        }
    )
    async with proxied(*plane, tmp_path_factory.mktemp("proxy"), {"token": await token(api)}) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def view_port() -> int:
    return int(free_address().rpartition(":")[2])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(
    proxy: ApiProxy, relay: DelayingProxy, view_port: int, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Operator]:
    """One that runs as the account."""
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    tls = mutual_tls(tmp_path_factory.mktemp("certificates"))
    relay.tls = tls.caller
    listen = ("--extender-listen", f":{relay.to.rpartition(':')[2]}", *tls.options)
    extender = (*listen, "--extender-endpoints", f"thalweg-system/{SERVICE}")
    view = ("--view-listen", f":{view_port}", "--view-endpoints", f"thalweg-system/{VIEW}")
    async with running_operator(
        proxy.kubeconfig,
        log,
        lease="kube-system/thalweg",
        extender=(*extender, *view),
        environment={"POD_IP": "10.9.8.7", "POD_NAMESPACE": "thalweg-system", "POD_NAME": "thalweg-0"},
    ) as operator:
        yield operator


def is_used(right: Right, requests: list[AuditedRequest]) -> bool:
    """Whether a request needed the right. A server-side apply that creates needs create beside patch.

    To change an allocation needs a right on a subresource that no request names.
    """
    if right.resource == "resourceclaims/binding":
        right = right._replace(resource="resourceclaims/status")
    return any(
        (right.verb == each.verb or (right.verb, each.verb, each.status) == ("create", "patch", 201))
        and (each.group, each.resource) == (right.group, right.resource)
        and right.name in ("", each.name)
        and right.namespace in ("", each.namespace)
        for each in requests
    )


def volume_class(name: str, provisioner: str) -> dict[str, Any]:
    return {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}  # fmt: skip


def claim(scene: ClusterScenario, name: str, storage_class: str) -> dict[str, Any]:
    wants = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": name, "namespace": scene.namespace}
    spec = {**wants, "storageClassName": storage_class}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def claiming(scene: ClusterScenario, name: str) -> dict[str, Any]:
    """A pod of the binder with a claim of its name."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    return scene.pod(name, "100m", scheduler=SCHEDULER_NAME, volumes=volumes)


async def give_volumes(scene: ClusterScenario) -> None:
    """A volume that is there, and one that is to be provisioned; their pods are gone before their claims are bound."""
    api = scene.api
    await api.create_many(
        [volume_class("there", "kubernetes.io/no-provisioner"), volume_class("made", "example.com/m")]
    )
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "there",
            "hostPath": {"path": "/v"}}  # fmt: skip
    held = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "there"}, "spec": spec}
    await api.create(held)
    await api.patch("/api/v1/persistentvolumes/there/status", {"status": {"phase": "Available"}})
    await api.create_many([claim(scene, name, name) for name in ("there", "made")])
    await api.create_many([claiming(scene, name) for name in ("there", "made")])
    await api.wait_for("/api/v1/persistentvolumes/there", lambda each: each["spec"].get("claimRef"))
    made = object_path(claim(scene, "made", "made"))
    await api.wait_for(made, lambda each: SELECTED_NODE in each["metadata"].get("annotations", {}))
    for name in ("there", "made"):
        await api.delete(scene.path(name))


async def create_group(scene: ClusterScenario, name: str) -> str:
    """A PodGroup of one pod of the binder, which has its node; the path of the group."""
    group = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup",
             "metadata": {"name": name, "namespace": scene.namespace},
             "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}}  # fmt: skip
    await scene.api.create(group)
    await scene.create(f"of-{name}", "100m", scheduler=SCHEDULER_NAME, schedulingGroup={"podGroupName": name})
    await scene.node_of(f"of-{name}")
    return object_path(group)


def is_scheduled(group: Any) -> bool:
    """Whether the condition of a PodGroup says so."""
    return any(each["status"] == "True" for each in group.get("status", {}).get("conditions", []))


async def test_the_rights_are_enough_and_each_is_used(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], proxy: ApiProxy, view_port: int, tmp_path: Path
) -> None:
    """In scenes of all features the API server refuses no request, and no right is idle."""
    control, api = plane
    operator = scene.operator
    await scene.nodes("a", "b", cpu="4")
    await gates_in_effect(scene, scene.pod("probe"))
    spec = {"delivery": "Binder", "replaces": {"victims": "Governed"}, "cost": {"utilisation": "Measured"}}
    await scene.policy("bound", selects={"podSelector": {}}, **spec)
    made = await api.create_many([scene.pod(f"steered-{n}", "100m") for n in range(10)])
    assert all(each["spec"]["schedulingGates"] == [{"name": GATE}] for each in made)
    await api.create_many([scene.pod(f"bound-{n}", "100m", scheduler=SCHEDULER_NAME) for n in range(10)])
    await scene.nodes_of(within=60)
    # A binding whose answer is lost: the operator reads the pod.
    proxy.loses = "/binding"
    await scene.create("asked-again", scheduler=SCHEDULER_NAME)
    await scene.node_of("asked-again")
    await until(lambda: not proxy.loses, 60, lambda: "the answer to be lost")
    await api.wait_for(scene.path("bound-0"), lambda each: each["status"].get("phase") == "Running")
    replaces = {"annotations": {"scheduling.thalweg/replaces": "bound-0"}}
    await scene.create("successor", scheduler=SCHEDULER_NAME, **replaces)
    await scene.node_of("successor")
    assert await count(operator, "thalweg_evictions_total", "evicted") == 1
    team = {"selects": {"podSelector": {"matchLabels": {"team": "a"}}}}
    await api.create({"apiVersion": f"{GROUP}/{VERSION}", "kind": "FlowQueue", "metadata": {"name": "a"}, "spec": team})
    await scene.create("big", "16")
    await scene.reason_of("big", "Insufficient cpu")
    await scene.create("large", "16", scheduler=SCHEDULER_NAME)
    await scene.reason_of("large", "Insufficient cpu")
    device_class = {"apiVersion": DEVICES, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 1}
    later = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
    devices = [{"name": "gpu-0"}, {"name": "gpu-1", **later}]
    slice_spec = {"driver": "gpu.example.com", "nodeName": "a", "pool": pool, "devices": devices}
    resource_slice = {"apiVersion": DEVICES, "kind": "ResourceSlice", "metadata": {"name": "a"}, "spec": slice_spec}
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
    claim = {"apiVersion": DEVICES, "kind": "ResourceClaim", "metadata": {"name": "gpu", "namespace": scene.namespace},
             "spec": {"devices": {"requests": [request]}}}  # fmt: skip
    await api.create_many([device_class, resource_slice, claim])
    named = [{"name": "gpu", "resourceClaimName": "gpu"}]
    await scene.create("claims", scheduler=SCHEDULER_NAME, resourceClaims=named)
    assert await scene.node_of("claims") == "a"
    await scene.create("asks", scheduler=SCHEDULER_NAME, extended={"deviceclass.resource.kubernetes.io/gpu": "1"})
    await scene.reason_of("asks", "its devices on a are not ready: gpu.example.com/a/gpu-1 (ready)")
    await report(scene, "broken")
    await scene.reason_of("asks", "a device will not get ready")
    await scene.delete("asks")
    await give_volumes(scene)
    await api.wait_for(await create_group(scene, "group"), is_scheduled)
    await scene.policy(
        "jobs", selects={"podSelector": {"matchLabels": {"of": "jobs"}}}, gangs={"controllers": ["Job", "RayCluster"]}
    )
    await start_volcano_job(api, scene.namespace, SCHEDULER_NAME)
    assert await operator.stop() == 0
    assert (await api.get(LEASE))["spec"]["holderIdentity"] == ""
    await operator.start()
    async with view_session() as session:
        viewer = Viewer(session, view_port, await token(api, audience=AUDIENCE))
        await answered(viewer, "overview", 200)
    # Kubernetes 1.37 serves it first.
    newer = "devicetaintrules"
    rights = [right for stem in files() for right in granted(stem) if right.resource != newer]
    idle: list[Right] = []

    async def all_used() -> bool:
        nonlocal idle
        requests = audited(control)
        assert [each for each in refused(requests) if each.resource != "endpointslices"] == []
        idle = [right for right in rights if not is_used(right, requests)]
        return not idle

    # Another replica, which stands by.
    async with running_operator(
        proxy.kubeconfig, tmp_path / "standby.log", lease="kube-system/thalweg", replicated=True, wait=False
    ):
        await until(all_used, 60, lambda: f"these rights to be used: {idle}")
    assert "Forbidden" not in operator.log


def lines(operator: Operator, *words: str) -> list[str]:
    """Those of its log that have all of these words."""
    return [line for line in operator.log.splitlines() if all(each in line for each in words)]


async def recovered(operator: Operator, right: str) -> None:
    """Waits for the line that says that a right is there again."""
    await until(lambda: lines(operator, "recovered", right), 40, lambda: f"{right} to be there again")


async def test_without_the_right_to_bind(scene: ClusterScenario, plane: tuple[ControlPlane, Api]) -> None:
    """Each pod of the binder gets the API server's words; the log has one line; pods of kube-scheduler are placed."""
    api = plane[1]
    await scene.nodes("a")
    await withhold(api, "binder")
    names = [f"p{n}" for n in range(5)]
    for name in names:
        await scene.create(name, scheduler=SCHEDULER_NAME)
    for name in names:
        await scene.reason_of(name, "the API server refused to bind it to a", 'cannot create resource "pods/binding"')
    await scene.create("steered")
    await scene.node_of("steered")
    assert len(lines(scene.operator, "failing", "right to create pods/binding")) == 1
    assert (await scene.operator.get("/readyz"))[0] == 200
    await restore(api, "binder")
    await scene.nodes_of(within=90)
    await recovered(scene.operator, "right to create pods/binding")


async def test_without_the_right_to_bind_claims(scene: ClusterScenario, plane: tuple[ControlPlane, Api]) -> None:
    """A pod with a claim gets the API server's words; others are bound; with the right its claim gets its volume."""
    api = plane[1]
    await scene.nodes("a")
    await api.create(volume_class("late", "example.com/late"))
    await withhold(api, "volumes")
    await api.create(claim(scene, "data", "late"))
    await api.create(claiming(scene, "data"))
    await scene.reason_of("data", "its volumes were not bound", 'cannot get resource "persistentvolumeclaims"')
    await scene.create("plain", scheduler=SCHEDULER_NAME)
    await scene.node_of("plain")
    assert (await scene.operator.get("/readyz"))[0] == 200
    await restore(api, "volumes")
    path = object_path(claim(scene, "data", "late"))
    await api.wait_for(
        path, lambda each: "volume.kubernetes.io/selected-node" in each["metadata"].get("annotations", {})
    )
    await api.delete(scene.path("data"))


async def test_without_the_right_to_write_conditions_of_groups(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api]
) -> None:
    """Pods of groups are bound; the log has one line for all groups; with the right new groups get their condition."""
    api = plane[1]
    await scene.nodes("a")
    await withhold(api, "podgroups")
    before = len(refused(audited(plane[0])))
    paths = [await create_group(scene, name) for name in ("first", "second")]
    refusal = "right to patch podgroups/status"
    await until(lambda: len(refused(audited(plane[0]))) >= before + 2, 30, lambda: "both groups to be refused")
    await restore(api, "podgroups")
    later = await create_group(scene, "later")
    await api.wait_for(later, is_scheduled)
    assert len(lines(scene.operator, "failing", refusal)) == 1
    await recovered(scene.operator, refusal)
    assert not any([is_scheduled(await api.get(path)) for path in paths]), "they are tried again minutes later"


async def test_without_the_right_to_patch_pods(scene: ClusterScenario, plane: tuple[ControlPlane, Api]) -> None:
    """Gated pods stay behind their gate and are told why; the binder works; with the right they are opened."""
    api = plane[1]
    await scene.nodes("a")
    await gates_in_effect(scene, scene.pod("probe"))
    await withhold(api, "extender")
    await scene.create("gated")
    refusal = "the API server refused to remove its scheduling gate"
    await scene.reason_of("gated", refusal, 'cannot patch resource "pods"')
    await scene.create("bound", scheduler=SCHEDULER_NAME)
    await scene.node_of("bound")
    assert (await scene.get("gated"))["spec"]["schedulingGates"] == [{"name": GATE}]
    assert len(lines(scene.operator, "failing", "right to patch pods")) == 1
    await restore(api, "extender")
    await scene.nodes_of(within=90)
    await recovered(scene.operator, "right to patch pods")


async def test_without_the_right_to_read_our_admission_policy(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api]
) -> None:
    """New pods are held, not gated, and placed all the same; the policy's condition says why."""
    api = plane[1]
    await scene.nodes("a")
    await gates_in_effect(scene, scene.pod("probe"))
    await withhold(api, "gates")
    await scene.policy("another", selects={"podSelector": {}}, precedence=-1)  # the operator looks at once

    def ready(each: Any) -> str:
        conditions = each.get("status", {}).get("conditions", [])
        return next((f"{one['reason']} {one['message']}" for one in conditions if one["type"] == "Ready"), "")

    held = await api.wait_for(f"{POLICIES}/steered", lambda each: "HeldNotGated" in ready(each))
    assert 'cannot get resource "mutatingadmissionpolicies"' in ready(held)

    async def created_without_gate() -> bool:
        made = await scene.api.request("POST", f"{scene.path('')}", scene.pod("probe"), params={"dryRun": "All"})
        return not made["spec"].get("schedulingGates")

    await until(created_without_gate, 30, lambda: "new pods not to be gated")
    await scene.create("held")
    await scene.node_of("held")
    assert len(lines(scene.operator, "new pods are not gated")) == 1
    await restore(api, "gates")
    await api.wait_for(f"{POLICIES}/steered", lambda each: ready(each).startswith("InForce"))
    await gates_in_effect(scene, scene.pod("probe"))


async def test_without_the_right_to_evict(scene: ClusterScenario, plane: tuple[ControlPlane, Api]) -> None:
    """A pod that is to replace another waits with the API server's words, and nothing is evicted; then it goes on."""
    api = plane[1]
    selects = {"podSelector": {}}
    await scene.policy("own", selects=selects, delivery="Binder", replaces={"victims": "Governed"})
    await scene.nodes("a")
    await scene.create("old", scheduler=SCHEDULER_NAME)
    await api.wait_for(scene.path("old"), lambda each: each["status"].get("phase") == "Running")
    await withhold(api, "eviction")
    await scene.create("new", scheduler=SCHEDULER_NAME, annotations={"scheduling.thalweg/replaces": "old"})
    await scene.reason_of("new", f"Waiting for {scene.namespace}/old", 'cannot create resource "pods/eviction"')
    await scene.create("other", scheduler=SCHEDULER_NAME)
    await scene.node_of("other")
    assert "deletionTimestamp" not in (await scene.get("old"))["metadata"]
    assert len(lines(scene.operator, "failing", "right to create pods/eviction")) == 1
    await restore(api, "eviction")
    await scene.node_of("new", within=90)
    await recovered(scene.operator, "right to create pods/eviction")


async def test_without_the_base(scene: ClusterScenario, plane: tuple[ControlPlane, Api]) -> None:
    """A new operator names the kinds that it may not list, places nothing, and begins once it may."""
    operator, api = scene.operator, plane[1]
    assert await operator.stop() == 0
    await withhold(api, "base")
    await scene.nodes("a")
    await scene.create("p", scheduler=SCHEDULER_NAME)
    operator.new_log()
    operator.begin()
    await operator.answers("/readyz", 503)
    missing = ["nodes", "pods", "namespaces", "policies"]

    async def named() -> bool:
        said = (await operator.get("/readyz"))[1]
        log = operator.log
        return all(kind in said and f"what={kind}" in log for kind in missing)

    await until(named, 30, lambda: f"{missing} to be named by /readyz and in the log")
    assert "nodeName" not in (await scene.get("p"))["spec"]
    await restore(api, "base")
    await operator.ready()
    await scene.node_of("p")


async def test_without_the_lease(scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path) -> None:
    """An account that may not use the lease: the operator ends, names the right, and has written nothing."""
    control, api = plane
    async with (
        proxied(control, api, tmp_path, {"token": await token(api)}) as proxy,
        running_operator(
            proxy.kubeconfig, tmp_path / "operator.log", lease="kube-system/other", wait=False
        ) as operator,
    ):
        process = operator._process
        assert process is not None
        await until(lambda: process.poll() is not None, 40, lambda: "it to end")
        assert process.returncode == 1
        assert "it needs get, create, patch and update on leases.coordination.k8s.io" in operator.log
        assert proxy.writes == []
    assert scene.operator.pid
