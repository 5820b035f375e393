"""PodGroups on Kubernetes 1.37, where kube-scheduler's gang scheduling is another one than that of 1.36."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from support.audit import writes_to_pods
from support.cluster_scenario import ClusterScenario
from support.controlplane import SharedPlane, executables
from support.kubernetes_rules import rules_of
from support.operator import until
from support.steering import count, gates_in_effect, nobody_binds
from thalweg_controlplane import Api, ControlPlane, Oracle

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(3600)]

PLANE = {"scheduler": True, "scheduler_gates": ("GenericWorkload=true",)}
STEERED: dict[str, str] = {}
BREAKS_PLANE = True
VERSION = "1.37"


@pytest.fixture(scope="module")
def shared_plane(request: pytest.FixtureRequest) -> Iterator[SharedPlane]:
    """In place of the one of the default version."""
    shared = SharedPlane(executables(request.config, VERSION))
    yield shared
    asyncio.run(shared.stop())


@pytest.fixture(scope="module")
def oracle(request: pytest.FixtureRequest) -> Iterator[Oracle]:
    """In place of the one of the default version."""
    with Oracle(executables(request.config, VERSION)) as oracle, rules_of(VERSION):
        yield oracle


async def group_of(scene: ClusterScenario, name: str, count: int) -> list[dict[str, Any]]:
    """A PodGroup, created, and its pods, which are not."""
    await scene.api.create(
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": scene.namespace},
            "spec": {"schedulingPolicy": {"gang": {"minCount": count}}},
        }
    )
    return [scene.pod(f"{name}-{n}", "1", schedulingGroup={"podGroupName": name}) for n in range(count)]


def names_of(pods: list[dict[str, Any]]) -> list[str]:
    """Their names."""
    return [pod["metadata"]["name"] for pod in pods]


async def test_planned_groups_cost_no_write(scene: ClusterScenario, plane: tuple[ControlPlane, Api]) -> None:
    """Two gangs have their plan before kube-scheduler asks: none has a gate, and we write to none of their pods."""
    await gates_in_effect(scene, scene.pod("probe", annotations={"scheduling.thalweg/gang": "other"}))
    await scene.nodes("a", "b", cpu="4")
    since = plane[0].audit_log.stat().st_size
    async with nobody_binds(plane):
        pods = [*await group_of(scene, "one", 4), *await group_of(scene, "two", 4)]
        for pod in pods:
            assert "schedulingGates" not in (await scene.api.create(pod))["spec"]

        async def planned() -> bool:
            return await count(scene.operator, "thalweg_reservations") == 8

        await until(planned, 60, lambda: "a plan of both gangs")
    await scene.nodes_of(*names_of(pods))
    assert writes_to_pods(plane[0], scene.namespace, since) == []


async def test_a_group_that_waits_for_room(scene: ClusterScenario) -> None:
    """It was tried in vain. One pod of it is woken once it has room, and kube-scheduler takes all of them."""
    await scene.nodes("a", cpu="4")
    first, second = await group_of(scene, "first", 3), await group_of(scene, "second", 3)
    await scene.api.create_many(first)
    await scene.nodes_of(*names_of(first))
    await scene.api.create_many(second)
    await scene.wait_for_round("mark")
    where = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in await scene.pods()}
    assert not any(where[name] for name in names_of(second))
    await scene.delete(*names_of(first))
    await scene.nodes_of(*names_of(second))
