"""Two replicas on one cluster, at 90 % load with gangs and plain pods: one leads, and the other takes over from it.

After each: no pod bound twice, no gang in part, none lost, nothing overcommitted, every pod that can run is bound.
"""

import itertools
import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
from support.cluster_scenario import ClusterScenario, policy
from support.gang_scenarios import members, whole
from support.operator import Operator, until
from support.proxy import ApiProxy, ProxiedRequest, proxied
from support.replicas import Replicas, pods_come_and_go, running_replicas
from support.rights import user_of
from thalweg_controlplane import Api, ControlPlane
from thalweg_operator.constants import LEADS_SINCE

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Pods of 100m: 90 % of five nodes with four CPUs each.
MOST = 180


async def load(scene: ClusterScenario) -> None:
    """The nodes for it; no other operator runs."""
    await scene.operator.stop()
    await scene.nodes(*(f"n{number}" for number in range(5)), cpu="4")


async def bound_after(scene: ClusterScenario, number: int) -> None:
    """Waits until so many pods more were ever bound."""
    before = len(scene.history.nodes_of)
    await until(lambda: len(scene.history.nodes_of) >= before + number, 60, lambda: f"{number} more to be bound")


async def killed(replicas: Replicas, leader: Operator) -> None:
    await leader.kill()
    assert await replicas.leader(leader) is not leader
    leader.begin()


async def stopped(replicas: Replicas, leader: Operator) -> None:
    assert await leader.stop() == 0
    assert "lease released" in leader.log
    assert await replicas.leader(leader) is not leader
    leader.begin()


async def replaced(replicas: Replicas, leader: Operator) -> None:
    """Both, one after the other, the standby first: as a Deployment does."""
    standby = await replicas.standby()
    for each in (standby, leader):
        assert await each.stop() == 0
        each.begin()
        await replicas.standby()


async def test_taken_over(scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path) -> None:
    """SIGKILL, SIGTERM, and both replaced: pods are bound on, and the one that comes back stands by."""
    await load(scene)
    config = scene.operator.kubeconfig
    async with running_replicas(plane[1], [config, config], tmp_path) as replicas:
        async with pods_come_and_go(scene, MOST):
            for fault in (killed, stopped, replaced):
                leader = await replicas.leader()
                await bound_after(scene, 10)
                await fault(replicas, leader)
                await bound_after(scene, 10)
                await replicas.standby()
        standby = await replicas.standby()
        assert f"lease: standby, {await replicas.holder()} leads\n" == (await standby.get("/readyz"))[1]
        assert await standby.get("/healthz") == (200, "ok\n")
        assert (await standby.metrics())["thalweg_leader"] == 0
        assert (await (await replicas.leader()).metrics())["thalweg_leader"] == 1
    await scene.operator.start()


async def test_what_classes_use_is_taken_over(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path
) -> None:
    """A leader reads it and saves it as it ends, in its own words; the next two read that."""
    await scene.operator.stop()
    await scene.nodes("n0")
    known = {"usage_class": {"namespace": "shop", "images": ["web"]}, "newest": time.time(), "amounts": [[100, 2**20]]}
    by_hand = json.dumps({"version": 1, "classes": [known]}, indent=1)
    path = "/api/v1/namespaces/kube-system/configmaps/thalweg-replicas-usage"
    config_map = {"metadata": {"name": "thalweg-replicas-usage", "namespace": "kube-system"}}
    await scene.api.apply({"apiVersion": "v1", "kind": "ConfigMap", **config_map, "data": {"usage.json": by_hand}})
    await scene.api.apply(policy("own", selects={"podSelector": {}}, cost={"utilisation": "Larger"}))
    config = scene.operator.kubeconfig
    async with running_replicas(plane[1], [config, config], tmp_path) as replicas:
        leader = await replicas.leader()
        await scene.wait_for_round("looked-at")
        await stopped(replicas, leader)
        second = await replicas.leader()
        saved = (await scene.api.get(path))["data"]["usage.json"]
        assert saved != by_hand
        assert "shop" in saved
        await replicas.standby()
        await killed(replicas, second)
        for each in (second, await replicas.leader()):
            assert re.search(r"saved usage read .*classes=1\b", each.log), each.log
    await scene.operator.start()


def frozen(leader: Operator, _proxy: ApiProxy, on: bool) -> None:  # noqa: FBT001
    os.kill(leader.pid, signal.SIGSTOP if on else signal.SIGCONT)


def cut_off(_leader: Operator, proxy: ApiProxy, on: bool) -> None:  # noqa: FBT001
    proxy.cut = on


async def test_silent_past_its_lease(scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path) -> None:
    """SIGSTOP and a partition, and its end: nothing that the leader wrote arrives after it has lost the lease."""
    await load(scene)
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    async with (
        proxied(*plane, tmp_path / "first", user_of(scene.operator.kubeconfig)) as first,
        proxied(*plane, tmp_path / "second", user_of(scene.operator.kubeconfig)) as second,
        running_replicas(plane[1], [first.kubeconfig, second.kubeconfig], tmp_path) as replicas,
    ):
        ways = dict(zip(replicas.operators, (first, second), strict=True))
        assert ways[await replicas.standby()].writes == []
        async with pods_come_and_go(scene, MOST):
            for silence in (frozen, cut_off):
                await replicas.standby()
                leader = await replicas.leader()
                way = ways[leader]
                await bound_after(scene, 10)
                silence(leader, way, True)
                await replicas.leader(leader)
                took_over = time.monotonic()
                await bound_after(scene, 10)
                silence(leader, way, False)
                assert await leader.ended() == 1
                assert "took the lease kube-system/thalweg-replicas" in leader.log
                assert "Traceback" not in leader.log
                assert [each.path for each in way.writes if each.when > took_over] == []
                leader.begin()
                assert await replicas.standby() is leader
    await scene.operator.start()


@pytest.mark.timeout(1800)
async def test_killed_while_a_gang_is_bound(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path
) -> None:
    """Before and after each of the first bindings of a gang: the other replica binds the rest while other pods come."""
    await scene.operator.stop()
    await scene.nodes(*(f"n{number}" for number in range(5)), cpu="64", pods=300)
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    async with (
        proxied(*plane, tmp_path / "first", user_of(scene.operator.kubeconfig)) as first,
        proxied(*plane, tmp_path / "second", user_of(scene.operator.kubeconfig)) as second,
        running_replicas(plane[1], [first.kubeconfig, second.kubeconfig], tmp_path) as replicas,
    ):
        ways = dict(zip(replicas.operators, (first, second), strict=True))
        gangs: list[str] = []
        for place, number in itertools.product(("before", "after"), range(1, 9)):
            await replicas.standby()
            leader = await replicas.leader()
            way, gang = ways[leader], f"{place}{number}"
            seen = 0

            def at(request: ProxiedRequest, leader: Operator = leader, gang: str = gang, number: int = number) -> bool:
                nonlocal seen
                if not request.path.endswith("/binding") or f"/{gang}-" not in request.path:
                    return leader.runs
                seen += 1
                if seen >= number and leader.runs:
                    os.kill(leader.pid, signal.SIGKILL)
                return seen < number

            setattr(way, place, at)
            plain = [scene.pod(f"plain-{gang}-{n}", "1") for n in range(8)]
            pods = members(scene, gang, 8)
            await scene.api.create_many([pod for pair in zip(pods, plain, strict=True) for pod in pair])
            await leader.ended(120)
            setattr(way, place, lambda _request: True)
            await replicas.give_away()
            await replicas.leader(leader)
            leader.begin()
            gangs.append(gang)
            await whole(scene, *gangs, size=8)
        await scene.nodes_of()
    await scene.operator.start()


@pytest.mark.parametrize("in_a_pod", [False, True])
async def test_the_standby_has_not_seen_the_last_bindings(
    scene: ClusterScenario,
    plane: tuple[ControlPlane, Api],
    tmp_path: Path,
    in_a_pod: bool,  # noqa: FBT001
) -> None:
    """Its watch of pods lags when it takes over: it brings its snapshot up to date before it binds, so all fits."""
    await scene.operator.stop()
    await scene.nodes("a", cpu="4")
    await scene.create("thalweg-0", scheduler="nobody")
    pod = {"POD_NAMESPACE": scene.namespace, "POD_NAME": "thalweg-0"} if in_a_pod else {}
    config = scene.operator.kubeconfig
    (tmp_path / "behind").mkdir()
    async with (
        proxied(*plane, tmp_path / "behind", user_of(config)) as behind,
        running_replicas(plane[1], [config, behind.kubeconfig], tmp_path, **pod) as replicas,
    ):
        leader, standby = replicas.operators
        assert await replicas.leader() is leader
        behind.lagging = {"/api/v1/pods"}
        await scene.api.create_many([scene.pod(f"early-{n}", "100m") for n in range(30)])
        await scene.nodes_of(*(f"early-{n}" for n in range(30)))
        assert (await standby.metrics())["thalweg_pods"] <= 1
        assert await leader.stop() == 0
        assert await replicas.leader() is standby
        assert (await standby.metrics())["thalweg_pods"] == 31
        assert (await standby.metrics())["thalweg_relists_total pods"] >= 1
        behind.lagging = set()
        await scene.api.create_many([scene.pod(f"late-{n}", "100m") for n in range(20)])
        await until(lambda: len(scene.history.nodes_of) == 40, 60, lambda: "ten more to be bound")
        await scene.wait_settled()
    await scene.operator.start()


async def test_the_mark_on_its_pod_is_enough(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path
) -> None:
    """A leader whose watch shows the change of its own pod lists nothing again."""
    await scene.operator.stop()
    await scene.nodes("a", cpu="4")
    await scene.create("thalweg-0", scheduler="nobody")
    config = scene.operator.kubeconfig
    pod = {"POD_NAMESPACE": scene.namespace, "POD_NAME": "thalweg-0"}
    async with running_replicas(plane[1], [config, config], tmp_path, **pod) as replicas:
        leader, standby = await replicas.leader(), await replicas.standby()
        await leader.stop()
        assert await replicas.leader() is standby
        assert not (await standby.metrics()).get("thalweg_relists_total pods")
        assert LEADS_SINCE in (await scene.get("thalweg-0"))["metadata"]["annotations"]
        await scene.create("after")
        await scene.node_of("after")
    await scene.operator.start()
