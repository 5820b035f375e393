"""What Thalweg does, once each, on the versions of Kubernetes beside the default one: test_smoke.py has all of that."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support import gang_scenarios
from support.cluster_scenario import ClusterScenario
from support.controlplane import SharedPlane, executables
from support.device_driver import API, DRIVER, allocated, publish
from support.kubernetes_rules import rules_of
from support.operator import Operator, running_operator
from support.steering import DelayingProxy, gates_in_effect, pods_go_where_the_plan_says
from thalweg_controlplane import Oracle
from thalweg_controlplane.building.build import KUBERNETES, MINOR_VERSION
from thalweg_controlplane.client.objects import object_path

from flowcore.model.kubernetes_version import KubernetesVersion
from flowcore.model.policies import GATE, SCHEDULER_NAME, STEERED_NAME

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(3600)]

PLANE = {"controller_manager": True, "scheduler": True, "kwok": True}
STEERED: dict[str, str] = {}
BREAKS_PLANE = True
BOTH = pytest.mark.parametrize("scheduler", [SCHEDULER_NAME, STEERED_NAME], ids=["binder", "extender"])


OTHERS = [each for each in KUBERNETES if each != MINOR_VERSION]


@pytest.fixture(scope="module", params=OTHERS, ids=[each.replace(".", "-") for each in OTHERS])
def minor_version(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


@pytest.fixture(scope="module")
def shared_plane(minor_version: str, request: pytest.FixtureRequest) -> Iterator[SharedPlane]:
    """In place of the one of the default version."""
    shared = SharedPlane(executables(request.config, minor_version))
    yield shared
    asyncio.run(shared.stop())


@pytest.fixture(scope="module")
def oracle(minor_version: str, request: pytest.FixtureRequest) -> Iterator[Oracle]:
    """In place of the one of the default version."""
    with Oracle(executables(request.config, minor_version)) as oracle, rules_of(minor_version):
        yield oracle


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(
    account: Path, relay: DelayingProxy, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Operator]:
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    async with running_operator(account, log, extender=("--extender-listen", relay.to)) as operator:
        yield operator


async def test_the_version_is_read_and_said(scene: ClusterScenario, minor_version: str) -> None:
    """The operator follows the rules of this very version, and its log says so."""
    version = (await scene.api.get("/version"))["gitVersion"]
    assert version == KUBERNETES[minor_version]
    (said,) = [line for line in scene.operator.log.splitlines() if "objects are read" in line]
    assert {f"server_version={version}", f"rules={minor_version}"} <= set(said.split())


@BOTH
async def test_gang(scene: ClusterScenario, scheduler: str) -> None:
    """A gang waits until all that it needs are there, while another pod comes through. Then all of it is placed."""
    scene.scheduler = scheduler
    await scene.nodes("a", "b", cpu="4")
    pods = gang_scenarios.members(scene, "job", 5)
    await scene.api.create_many(pods[:4])
    await scene.create("alone", "1")
    await scene.node_of("alone")
    assert await gang_scenarios.bound(scene) == {}
    await scene.api.create(pods[4])
    await gang_scenarios.whole(scene, "job", size=5)


async def test_steer(scene: ClusterScenario) -> None:
    """kube-scheduler asks the extender about each pod, and binds it where the plan says."""
    await pods_go_where_the_plan_says(scene)


@BOTH
async def test_devices(scene: ClusterScenario, scheduler: str) -> None:
    """Pods get the devices of their claims, and what has none waits and is told so."""
    gpu: dict[str, Any] = {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": "gpu"}}
    gpu["spec"] = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
    template = {"apiVersion": API, "kind": "ResourceClaimTemplate",
                "metadata": {"name": "one", "namespace": scene.namespace},
                "spec": {"spec": {"devices": {"requests": [request]}}}}  # fmt: skip
    await scene.api.create_many([gpu, template])
    await publish(scene, "a", 2)
    await scene.nodes("a", "b", cpu="8")
    one = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    names = ["p0", "p1"]
    await scene.api.create_many([scene.pod(name, resourceClaims=one, scheduler=scheduler) for name in names])
    assert await scene.nodes_of(*names) == dict.fromkeys(names, "a")
    assert await allocated(scene) == [("a", "gpu-0"), ("a", "gpu-1")]
    await scene.create("p2", resourceClaims=one, scheduler=scheduler)
    await scene.reason_of("p2", "0/2 nodes are available: 2 cannot allocate all claims")
    await scene.clean_up()
    await scene.api.delete(object_path(gpu))
    await scene.api.delete(f"/apis/{API}/resourceslices")


async def test_waiting_pods(scene: ClusterScenario, minor_version: str) -> None:
    """Where the API server can gate pods it does so. Elsewhere kube-scheduler's queue holds them, and it is said."""
    policy = await scene.policy("steered", selects={"podSelector": {}}, delivery="Extender", waiting="Gate")
    await scene.nodes("a", cpu="1")
    gates = KubernetesVersion(minor_version).has_mutating_policies
    if gates:
        await gates_in_effect(scene, scene.pod("probe", "64"))
    await scene.create("first", "1")
    await scene.node_of("first")
    await scene.create("second", "1")
    await scene.reason_of("second", "Insufficient cpu")
    assert (await scene.get("second"))["spec"].get("schedulingGates", []) == ([{"name": GATE}] if gates else [])
    await scene.policy_seen(
        "steered",
        policy["metadata"]["generation"],
        lambda each: ("HeldNotGated" in {said["reason"] for said in each["status"]["conditions"]}) != gates,
    )
    await scene.delete("first")
    assert await scene.node_of("second") == "a"
