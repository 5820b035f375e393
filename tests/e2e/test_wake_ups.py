"""A pod waits for something; it comes; the pod gets its node: kinds of events, for both ways of delivery.

As the table of Kubernetes' own test of requeueing (test/integration/scheduler/queueing/queueinghint). Rooms, taints,
labels of nodes and pods that others wait for are in test_waiting.py.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import pytest
import pytest_asyncio
from support.cluster_scenario import ClusterScenario
from support.device_driver import API as DEVICES
from support.device_driver import DRIVER, publish
from support.operator import until
from thalweg_controlplane import Api, ApiError, ControlPlane
from thalweg_controlplane.client.api import STRATEGIC_PATCH
from thalweg_controlplane.client.objects import object_path

from flowcore.model.policies import SCHEDULER_NAME, STEERED_NAME

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"controller_manager": True, "scheduler": True, "kwok": True}
STEERED: dict[str, str] = {}

Steps = AsyncIterator[None]
"""Makes ``p``, which waits; yields; then what it waits for comes."""
ON_A: Final = {"nodeSelector": {"kubernetes.io/hostname": "a"}}
VOLUME: Final = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
DEVICE: Final = {"resourceClaims": [{"name": "r", "resourceClaimName": "c"}]}


def rule(app: str, kind: str = "podAffinity", **more: Any) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname", **more}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


async def running(scene: ClusterScenario, name: str, cpu: str | None = "100m", **options: Any) -> None:
    await scene.create(name, cpu, **options)
    await scene.node_of(name)


async def relabel(scene: ClusterScenario, name: str, app: str) -> None:
    await scene.api.patch(scene.path(name), {"metadata": {"labels": {"app": app}}})


async def a_toleration_of_its_own(scene: ClusterScenario) -> Steps:
    await scene.api.patch("/api/v1/nodes/a", {"spec": {"taints": [{"key": "closed", "effect": "NoSchedule"}]}})
    await scene.create("p", **ON_A)
    yield
    tolerations = (await scene.get("p"))["spec"].get("tolerations", [])
    more = [*tolerations, {"key": "closed", "operator": "Exists"}]
    await scene.api.patch(scene.path("p"), {"spec": {"tolerations": more}})


async def its_gate_opens(scene: ClusterScenario) -> Steps:
    await scene.create("p", schedulingGates=[{"name": "example.com/wait"}])
    yield
    await scene.api.patch(scene.path("p"), {"spec": {"schedulingGates": None}})


async def a_port_comes_free(scene: ClusterScenario) -> Steps:
    port = [{"name": "c", "image": "none", "ports": [{"containerPort": 80, "hostPort": 8080}]}]
    await running(scene, "q", containers=port, **ON_A)
    await scene.create("p", containers=port, **ON_A)
    yield
    await scene.delete("q")


async def room_comes_free(scene: ClusterScenario) -> Steps:
    await running(scene, "q", "5", **ON_A)
    await scene.create("p", "5", **ON_A)
    yield
    await scene.delete("q")


async def its_requests_shrink(scene: ClusterScenario) -> Steps:
    await scene.create("p", "50")
    yield
    smaller = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    await scene.api.patch(f"{scene.path('p')}/resize", {"spec": {"containers": smaller}}, content_type=STRATEGIC_PATCH)


async def a_pod_gets_the_label_that_it_wants(scene: ClusterScenario) -> Steps:
    await running(scene, "q", labels={"app": "y"})
    await scene.create("p", **rule("x"))
    yield
    await relabel(scene, "q", "x")


async def a_pod_loses_the_label_that_it_shuns(scene: ClusterScenario) -> Steps:
    await running(scene, "q", labels={"app": "x"}, **ON_A)
    await scene.create("p", **rule("x", "podAntiAffinity"), **ON_A)
    yield
    await relabel(scene, "q", "y")


async def its_own_label_is_no_longer_shunned(scene: ClusterScenario) -> Steps:
    await running(scene, "q", **rule("x", "podAntiAffinity"), **ON_A)
    await scene.create("p", labels={"app": "x"}, **ON_A)
    yield
    await relabel(scene, "p", "y")


async def a_namespace_gets_its_label(scene: ClusterScenario) -> Steps:
    await running(scene, "q", labels={"app": "x"})
    await scene.create("p", **rule("x", namespaceSelector={"matchLabels": {"awake": "yes"}}))
    yield
    await scene.api.patch(f"/api/v1/namespaces/{scene.namespace}", {"metadata": {"labels": {"awake": "yes"}}})


async def a_domain_becomes_emptier(scene: ClusterScenario) -> Steps:
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    spread |= {"labelSelector": {"matchLabels": {"app": "s"}}, "nodeAffinityPolicy": "Ignore"}
    await running(scene, "q", labels={"app": "s"}, **ON_A)
    await scene.create("p", labels={"app": "s"}, topologySpreadConstraints=[spread], **ON_A)
    yield
    await scene.delete("q")


async def a_volume_comes(scene: ClusterScenario) -> Steps:
    await scene.create("p", **VOLUME)
    await scene.reason_of("p")
    await claim(scene)
    await scene.api.create(storage_class(scene))
    yield
    await volume(scene)


async def a_storage_class_comes(scene: ClusterScenario) -> Steps:
    """Its provisioner makes no volume before a node is selected, and no volume that is there fits the claim."""
    await claim(scene)
    await scene.create("p", **VOLUME)
    yield
    await scene.api.create({**storage_class(scene), "provisioner": "csi.example.com"})
    path = f"/api/v1/namespaces/{scene.namespace}/persistentvolumeclaims/c"
    selected = "volume.kubernetes.io/selected-node"
    await scene.api.wait_for(path, lambda each: selected in each["metadata"].get("annotations", {}))
    of = {"kind": "PersistentVolumeClaim", "namespace": scene.namespace, "name": "c"}
    await volume(scene, hostPath={"path": "/v"}, claimRef=of)


async def a_claim_is_bound(scene: ClusterScenario) -> Steps:
    await scene.api.create({**storage_class(scene), "volumeBindingMode": "Immediate"})
    await claim(scene)
    await scene.create("p", **VOLUME)
    yield
    await volume(scene)


async def a_claim_of_one_pod_comes_free(scene: ClusterScenario) -> Steps:
    await scene.api.create(storage_class(scene))
    await volume(scene, "ReadWriteOncePod")
    await claim(scene, "ReadWriteOncePod")
    await running(scene, "q", **VOLUME)
    await scene.create("p", **VOLUME)
    yield
    await scene.delete("q")


async def a_node_attaches_more_volumes(scene: ClusterScenario) -> Steps:
    await scene.api.create(csi_node(1))
    for name in ("c", "d"):
        await volume(scene, name=name, csi={"driver": "csi.example.com", "volumeHandle": name})
        await claim(scene, name=name, volumeName=f"{scene.namespace}-{name}")
        path = f"/api/v1/namespaces/{scene.namespace}/persistentvolumeclaims/{name}"
        await scene.api.wait_for(path, lambda each: each["status"].get("phase") == "Bound")
    other = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "d"}}]}
    await running(scene, "q", **other, **ON_A)
    await scene.create("p", **VOLUME, **ON_A)
    yield
    await scene.api.delete(object_path(csi_node(1)))
    await scene.api.create(csi_node(5))


async def a_device_class_comes(scene: ClusterScenario) -> Steps:
    await publish(scene, "a", 1)
    await device_claim(scene, "c")
    await scene.create("p", **DEVICE)
    yield
    await scene.api.create(DEVICE_CLASS)


async def devices_are_published(scene: ClusterScenario) -> Steps:
    await scene.api.create(DEVICE_CLASS)
    await device_claim(scene, "c")
    await scene.create("p", **DEVICE)
    yield
    await publish(scene, "a", 1)


async def a_claim_of_devices_comes(scene: ClusterScenario) -> Steps:
    await scene.api.create(DEVICE_CLASS)
    await publish(scene, "a", 1)
    await scene.create("p", **DEVICE)
    yield
    await device_claim(scene, "c")


async def a_device_comes_free(scene: ClusterScenario) -> Steps:
    await scene.api.create(DEVICE_CLASS)
    await publish(scene, "a", 1)
    await device_claim(scene, "c")
    await device_claim(scene, "d")
    await running(scene, "q", resourceClaims=[{"name": "r", "resourceClaimName": "d"}])
    await scene.create("p", **DEVICE)
    yield
    await scene.delete("q")


CASES: Final[list[Callable[[ClusterScenario], Steps]]] = [
    a_toleration_of_its_own,
    its_gate_opens,
    a_port_comes_free,
    room_comes_free,
    its_requests_shrink,
    a_pod_gets_the_label_that_it_wants,
    a_pod_loses_the_label_that_it_shuns,
    its_own_label_is_no_longer_shunned,
    a_namespace_gets_its_label,
    a_domain_becomes_emptier,
    a_volume_comes,
    a_storage_class_comes,
    a_claim_is_bound,
    a_claim_of_one_pod_comes_free,
    a_node_attaches_more_volumes,
    a_device_class_comes,
    devices_are_published,
    a_claim_of_devices_comes,
    a_device_comes_free,
]


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def left_behind(plane: tuple[ControlPlane, Api]) -> AsyncIterator[None]:
    """Removes what a test made outside of its namespace, once its pods are gone."""
    yield
    await until(lambda: remove(plane[1]), 30, lambda: f"{_MADE} to be gone")


#: Labels of a namespace do not make kube-scheduler try a pod again, with Thalweg or without.
BOTH: Final = [
    pytest.param(case, scheduler, id=f"{way}-{case.__name__.replace('_', '-')}")
    for scheduler, way in ((SCHEDULER_NAME, "binder"), (STEERED_NAME, "extender"))
    for case in CASES
    if (case, way) != (a_namespace_gets_its_label, "extender")
]


@pytest.mark.parametrize(("case", "scheduler"), BOTH)
async def test_it_comes(scene: ClusterScenario, case: Callable[[ClusterScenario], Steps], scheduler: str) -> None:
    """It is told that it waits, and has a node soon after."""
    scene.scheduler = scheduler
    await scene.nodes("a", "b", cpu="8")
    await scene.ready("a", "b")
    steps = case(scene)
    await anext(steps)
    if not (case is a_claim_of_devices_comes and scheduler == STEERED_NAME):
        await scene.reason_of("p")  # kube-scheduler says nothing to a pod whose claim is not there
    await anext(steps, None)
    await scene.node_of("p", within=30)


DEVICE_CLASS: Final = {
    "apiVersion": DEVICES,
    "kind": "DeviceClass",
    "metadata": {"name": "wake"},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
}


async def device_claim(scene: ClusterScenario, name: str) -> None:
    request = {"name": "r", "exactly": {"deviceClassName": "wake"}}
    metadata = {"name": name, "namespace": scene.namespace}
    spec = {"devices": {"requests": [request]}}
    await scene.api.create({"apiVersion": DEVICES, "kind": "ResourceClaim", "metadata": metadata, "spec": spec})


def storage_class(scene: ClusterScenario) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": scene.namespace},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


async def volume(scene: ClusterScenario, mode: str = "ReadWriteOnce", name: str = "v", **source: Any) -> None:
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": [mode], "storageClassName": scene.namespace}
    spec |= source or {"hostPath": {"path": "/v"}}
    metadata = {"name": f"{scene.namespace}-{name}"}
    await scene.api.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec})


async def claim(scene: ClusterScenario, mode: str = "ReadWriteOnce", name: str = "c", **more: Any) -> None:
    spec = {"accessModes": [mode], "storageClassName": scene.namespace, "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": name, "namespace": scene.namespace}
    manifest = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec | more}
    await scene.api.create(manifest)


def csi_node(count: int) -> dict[str, Any]:
    driver = {"name": "csi.example.com", "nodeID": "a", "topologyKeys": [], "allocatable": {"count": count}}
    metadata = {"name": "a"}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": metadata, "spec": {"drivers": [driver]}}


_MADE: Final = (
    f"/apis/{DEVICES}/resourceclaims",
    f"/apis/{DEVICES}/deviceclasses",
    f"/apis/{DEVICES}/resourceslices",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/storage.k8s.io/v1/csinodes",
    "/api/v1/persistentvolumeclaims",
    "/api/v1/persistentvolumes",
)


async def remove(api: Api) -> bool:
    """Deletes what is left of these kinds, finalizers or not; whether nothing is left."""
    left = 0
    for path in _MADE:
        for each in await api.list(path):
            left += 1
            metadata, (start, _, plural) = each["metadata"], path.rpartition("/")
            inside = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
            place = f"{start}{inside}/{plural}/{metadata['name']}"
            try:
                await api.delete(place)
                await api.patch(place, {"metadata": {"finalizers": None}})
            except ApiError as error:
                if error.status not in (404, 409):
                    raise
    return not left
