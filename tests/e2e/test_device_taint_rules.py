"""On Kubernetes 1.37: DeviceTaintRules keep pods from devices, and an operator with the roles of an earlier version."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from support.cluster_scenario import ClusterScenario
from support.controlplane import SharedPlane, executables
from support.device_driver import API, DRIVER, allocated_are, publish
from support.rights import manifests
from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.client.objects import object_path

from flowcore.model.policies import SCHEDULER_NAME, STEERED_NAME

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"controller_manager": True, "scheduler": True, "kwok": True}
STEERED: dict[str, str] = {}
#: Kinds whose rights came with 1.37.
NEWER = ("devicetaintrules",)
CLASS: dict[str, Any] = {
    "apiVersion": API,
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
}
RULE: dict[str, Any] = {
    "apiVersion": API,
    "kind": "DeviceTaintRule",
    "metadata": {"name": "broken"},
    "spec": {
        "deviceSelector": {"driver": DRIVER, "pool": "a", "device": "gpu-0"},
        "taint": {"key": "example.com/broken", "effect": "NoSchedule"},
    },
}
GPU = [{"name": "gpu", "resourceClaimTemplateName": "one"}]


@pytest.fixture(scope="session")
def shared_plane(request: pytest.FixtureRequest) -> Iterator[SharedPlane]:
    """Of the version whose kube-scheduler follows such rules."""
    shared = SharedPlane(executables(request.config, "1.37"))
    yield shared
    asyncio.run(shared.stop())


async def put_devices(scene: ClusterScenario) -> None:
    """A node with one device, a class of it, and a template of claims for one."""
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
    template = {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one", "namespace": scene.namespace},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    await scene.api.create_many([CLASS, template])
    await publish(scene, "a", 1)
    await scene.nodes("a", cpu="8")


async def remove_devices(scene: ClusterScenario) -> None:
    """Nothing of them is left for the next test."""
    await scene.clean_up()
    for path in (object_path(CLASS), f"/apis/{API}/resourceslices", f"/apis/{API}/devicetaintrules"):
        await scene.api.delete(path)


@pytest.mark.parametrize("scheduler", [SCHEDULER_NAME, STEERED_NAME], ids=["binder", "extender"])
async def test_a_tainted_device_is_for_nobody(scene: ClusterScenario, scheduler: str) -> None:
    """A pod waits for it with kube-scheduler's words until the rule goes; then it has it."""
    await put_devices(scene)
    await scene.api.create(RULE)
    await asyncio.sleep(1)
    await scene.create("p", "1", resourceClaims=GPU, scheduler=scheduler)
    await scene.reason_of("p", "0/1 nodes are available: 1 cannot allocate all claims")
    await scene.api.delete(object_path(RULE))
    assert await scene.node_of("p", within=60) == "a"
    await allocated_are(scene, ("a", "gpu-0"))
    await remove_devices(scene)


async def test_an_operator_with_the_roles_of_an_earlier_version(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api]
) -> None:
    """It is ready and binds. Pods that need what it may not read wait and say so, and go on with the rights."""
    operator, api = scene.operator, plane[1]
    roles = [each for stem in ("base", "devices") for each in manifests(stem) if each["kind"] == "ClusterRole"]
    for role in roles:
        rules = [rule for rule in role["rules"] if not set(NEWER) & set(rule["resources"])]
        await api.apply({**role, "rules": rules})
    assert await operator.stop() == 0
    operator.new_log()
    await operator.start()
    await put_devices(scene)
    await scene.create("plain", "1", scheduler=SCHEDULER_NAME)
    await scene.node_of("plain")
    await scene.create("claiming", "1", resourceClaims=GPU, scheduler=SCHEDULER_NAME)
    await scene.reason_of("claiming", "its resource claims are not planned", "DeviceTaintRules cannot be read")
    for kind in NEWER:
        assert [line for line in operator.log.splitlines() if "failing" in line and f"what={kind}" in line]
    for role in roles:
        await api.apply(role)
    assert await scene.node_of("claiming", within=60) == "a"
    await remove_devices(scene)
