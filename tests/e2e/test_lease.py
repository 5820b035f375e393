"""Two operators on one cluster: one works, and the other one waits for the lease, or refuses."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.cluster_scenario import ClusterScenario
from support.operator import Operator, running_operator, until
from support.proxy import proxied
from support.rights import user_of
from thalweg_controlplane import Api, ControlPlane

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAME = "kube-system/thalweg-shared"
PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/thalweg-shared"


async def holder(api: Api) -> str:
    """Who holds the shared lease now."""
    lease: dict[str, Any] = await api.get(PATH)
    return str(lease["spec"]["holderIdentity"])


async def ended(operator: Operator, within: float = 30.0) -> int:
    """Waits until it has ended by itself; its exit code."""
    process = operator._process
    assert process is not None
    return await asyncio.to_thread(process.wait, within)


async def test_a_second_one_refuses(scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path) -> None:
    """It ends with one sentence that names the holder and the lease, is never ready, and writes nothing."""
    await scene.operator.stop()
    await scene.nodes("a")
    async with (
        running_operator(scene.operator.kubeconfig, tmp_path / "first.log", lease=NAME) as first,
        proxied(*plane, tmp_path, user_of(scene.operator.kubeconfig)) as proxy,
        running_operator(proxy.kubeconfig, tmp_path / "second.log", lease=NAME, wait=False) as second,
    ):
        assert "\nlease: " in await second.answers("/readyz", 503)
        assert await ended(second) == 1
        assert f"another Thalweg works on this cluster: {await holder(plane[1])} holds the lease {NAME}" in second.log
        assert "Traceback" not in second.log
        assert proxy.writes == []
        await scene.create("after")
        assert await scene.node_of("after") == "a"
        assert await first.stop() == 0
    await scene.operator.start()


async def test_released_when_stopped(scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path) -> None:
    """SIGTERM gives the lease back: the next one holds it at its first try, without waiting for its end."""
    await scene.operator.stop()
    await scene.nodes("a")
    async with running_operator(scene.operator.kubeconfig, tmp_path / "operator.log", lease=NAME) as operator:
        assert await operator.stop() == 0
        assert await holder(plane[1]) == ""
        await operator.start()
        assert "waiting for the lease" not in operator.log
        await scene.create("after")
        assert await scene.node_of("after") == "a"
    await scene.operator.start()


async def test_killed(scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path) -> None:
    """SIGKILL amid pods that fill the cluster: the next one waits for the lease to end, then binds the rest, once."""
    await scene.operator.stop()
    await scene.nodes(*(f"n{number}" for number in range(5)), cpu="5")
    async with running_operator(scene.operator.kubeconfig, tmp_path / "operator.log", lease=NAME) as operator:
        creating = asyncio.create_task(scene.api.create_many([scene.pod(f"p{n}", "100m") for n in range(250)], 4))
        await until(lambda: len(scene.history.nodes_of) > 60, 60, lambda: "some to be bound")
        await operator.kill()
        before = await holder(plane[1])
        await operator.start()
        assert "waiting for the lease" in operator.log
        assert await holder(plane[1]) != before
        await creating
        await scene.nodes_of(within=60)
    await scene.operator.start()
