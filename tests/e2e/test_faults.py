"""Whatever is killed, nothing is bound twice, nothing is overcommitted and no pod is lost."""

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.cluster_scenario import ClusterScenario
from support.operator import until
from thalweg_controlplane import Api, ApiError, ControlPlane
from thalweg_controlplane.objects import node

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def insist(action: Callable[[], Awaitable[Any]]) -> None:
    """Does it, also while the API server is away now and then; 409 and 404 mean that an earlier try got through."""
    while True:
        try:
            await action()
        except ApiError as error:
            if error.status in (409, 404):
                return
            if error.status not in (0, 429, 500, 503, 401, 403):
                raise
            await asyncio.sleep(0.05)
        else:
            return


async def create_all(scene: ClusterScenario, pods: list[dict[str, Any]], concurrency: int = 8) -> None:
    """Creates pods in order and steadily, through any trouble."""
    gate = asyncio.Semaphore(concurrency)

    async def one(pod: dict[str, Any]) -> None:
        async with gate:
            await insist(lambda: scene.api.create(pod))

    await asyncio.gather(*(one(pod) for pod in pods))


async def some_bound(scene: ClusterScenario, count: int) -> None:
    """Returns as soon as the API server has seen so many pods bound."""
    await until(lambda: len(scene.history.nodes_of) >= count, 60, lambda: f"{count} pods to be bound")


async def no_reservations_left(scene: ClusterScenario) -> None:
    """Every reservation ends: confirmed, or given back."""

    async def none() -> bool:
        return (await scene.operator.metrics())["thalweg_reservations"] == 0

    await until(none, 20, lambda: "all reservations to end")


async def test_the_api_server_is_killed_while_pods_arrive(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api]
) -> None:
    """Twice in the middle of 500 pods that fill the cluster to the last millicore; all are bound in the end."""
    await scene.nodes(*(f"n{number}" for number in range(10)), cpu="5")
    pods = [scene.pod(f"p{number}", "100m") for number in range(500)]
    creating = asyncio.create_task(create_all(scene, pods))
    for count in (60, 250):
        await some_bound(scene, count)
        await plane[0].kill("kube-apiserver")
        await plane[0].start("kube-apiserver")
    await creating
    await scene.nodes_of(within=90)
    assert len(await scene.pods()) == 500
    await no_reservations_left(scene)


async def test_the_operator_is_killed_half_way(scene: ClusterScenario) -> None:
    """SIGKILL amid 500 pods that fill the cluster exactly: started again it counts what runs."""
    await scene.nodes(*(f"n{number}" for number in range(10)), cpu="5")
    await create_all(scene, [scene.pod(f"early-{number}", "100m") for number in range(150)])
    creating = asyncio.create_task(create_all(scene, [scene.pod(f"late-{number}", "100m") for number in range(350)]))
    for count in (170, 320):
        await some_bound(scene, count)
        workers = scene.operator.worker_pids()
        assert workers
        await scene.operator.kill()
        await until(partial(_all_gone, workers), 10, lambda: "the workers to end with their operator")
        await scene.operator.start()
    await creating
    await scene.nodes_of(within=90)
    await no_reservations_left(scene)


async def test_solver_workers_are_killed(scene: ClusterScenario) -> None:
    """Again and again while pods arrive: each is replaced, told the whole cluster anew, and all pods are placed."""
    await scene.nodes(*(f"n{number}" for number in range(10)), cpu="3")
    before = (await scene.operator.metrics())["thalweg_worker_restarts_total"]
    creating = asyncio.create_task(create_all(scene, [scene.pod(f"p{number}", "100m") for number in range(300)], 4))
    for count in (1, 60, 120, 180):
        await some_bound(scene, count)
        # One that died after the last round is replaced, and counted, with the next one only.
        await until(lambda: creating.done() or scene.operator.worker_pids(), 20, lambda: "a worker")
        for pid in scene.operator.worker_pids():
            os.kill(pid, signal.SIGKILL)
    await creating
    await scene.nodes_of(within=60)
    # And one that dies while nothing is going on.
    await scene.nodes("more", cpu="1")
    for pid in scene.operator.worker_pids():
        os.kill(pid, signal.SIGKILL)
    await scene.create("after", "1")
    assert await scene.node_of("after") == "more"
    assert (await scene.operator.metrics())["thalweg_worker_restarts_total"] > before


async def test_a_worker_that_hangs_does_not_stop_probes(scene: ClusterScenario) -> None:
    """A stopped worker (SIGSTOP) keeps only rounds waiting; when it goes on, so do they."""
    await scene.nodes("n")
    await scene.wait_for_round("first")
    (worker,) = scene.operator.worker_pids()
    os.kill(worker, signal.SIGSTOP)
    try:
        await scene.create("waiting")
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await scene.operator.get(path))[0] == 200
        assert "nodeName" not in (await scene.get("waiting"))["spec"]
    finally:
        os.kill(worker, signal.SIGCONT)
    assert await scene.node_of("waiting") == "n"


async def test_nodes_come_and_go_while_pods_arrive(scene: ClusterScenario) -> None:
    """Nodes deleted between plan and bind: what was not bound in time goes to nodes that are there."""
    await scene.nodes("steady-1", "steady-2", cpu="40", pods=500)
    stop = asyncio.Event()

    async def churn() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            await scene.api.create(node(f"brief-{number}", cpu="64", pods=500))
            await some_bound(scene, min(290, 3 * number))
            await scene.api.delete(f"/api/v1/nodes/brief-{number}")

    churning = asyncio.create_task(churn())
    await create_all(scene, [scene.pod(f"p{number}", "100m") for number in range(300)], 2)
    stop.set()
    await churning
    where = await scene.nodes_of()
    assert len(where) == 300
    # Nodes are gone now: the next pods can only go where nodes are.
    await scene.create("last")
    assert await scene.node_of("last") in {"steady-1", "steady-2"}
    await no_reservations_left(scene)


async def test_nodes_are_tainted_while_pods_arrive(scene: ClusterScenario) -> None:
    """Once a taint is there for all to see, a pod that does not tolerate it is not bound there any more."""
    await scene.nodes(*(f"n{number}" for number in range(6)), cpu="20")
    creating = asyncio.create_task(create_all(scene, [scene.pod(f"p{number}", "100m") for number in range(200)], 4))
    for number in range(5):
        await some_bound(scene, 30 * number + 20)
        taint = {"spec": {"taints": [{"key": "closed", "effect": "NoSchedule"}]}}
        await scene.api.patch(f"/api/v1/nodes/n{number}", taint)
    await creating
    await scene.nodes_of()
    scene.ignored_pods.update(each["metadata"]["name"] for each in await scene.pods())
    await scene.create("last")
    assert await scene.node_of("last") == "n5"


async def test_pods_are_deleted_while_they_are_placed(scene: ClusterScenario) -> None:
    """Pods that vanish between plan and bind leave no room behind: the cluster can still be filled."""
    await scene.nodes("a", "b", "c", cpu="10")
    draw = random.Random(7)
    names = [f"p{number}" for number in range(300)]
    creating = asyncio.create_task(create_all(scene, [scene.pod(name, "100m") for name in names], 4))
    doomed = [name for name in names if draw.random() < 0.5]

    async def delete(name: str) -> None:
        await until(lambda: f"{scene.namespace}/{name}" in scene.history.seen.values(), 60, lambda: f"{name} to come")
        await insist(lambda: scene.api.delete(scene.path(name), gracePeriodSeconds="0"))

    for start in range(0, len(doomed), 10):
        await asyncio.gather(*(delete(name) for name in doomed[start : start + 10]))
    await creating
    left = {each["metadata"]["name"] for each in await scene.pods()}
    assert left == set(names) - set(doomed)
    await scene.nodes_of()
    await no_reservations_left(scene)
    await create_all(scene, [scene.pod(f"q{number}", "100m") for number in range(300 - len(left))])
    await scene.nodes_of()
    await scene.create("one-too-many")
    await scene.reason_of("one-too-many", "3 Insufficient cpu")


async def test_a_pod_that_is_replaced_under_its_name(scene: ClusterScenario) -> None:
    """Deleted and made again at once, over and over: every one that stays is bound, and bound as itself."""
    await scene.nodes("n", cpu="1")
    for number in range(25):
        made = await scene.create("same", "900m")
        if number % 3 == 0:
            await scene.node_of("same")
        await scene.api.delete(scene.path("same"), gracePeriodSeconds="0", propagationPolicy="Background")
    made = await scene.create("same", "900m")
    await scene.node_of("same")
    assert (await scene.get("same"))["metadata"]["uid"] == made["metadata"]["uid"]


async def test_another_binder_at_work(scene: ClusterScenario) -> None:
    """Somebody else binds our pods by hand: conflicts are lost gracefully, and their places count."""
    await scene.nodes("a", "b", cpu="30", pods=500)
    names = [f"p{number}" for number in range(200)]

    async def by_hand(name: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": "a"}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        try:
            await scene.api.create(scene.pod(name, "100m"))
            await scene.api.request("POST", scene.path(name) + "/binding", body)
        except ApiError as error:
            if error.status != 409:
                raise

    for start in range(0, 200, 20):
        await asyncio.gather(*(by_hand(name) for name in names[start : start + 20]))
    await scene.nodes_of()
    await no_reservations_left(scene)


async def test_etcd_is_restarted(scene: ClusterScenario, plane: tuple[ControlPlane, Api]) -> None:
    """Bindings are answered with errors for a while; none is lost."""
    await scene.nodes("a", "b", cpu="15", pods=151)
    creating = asyncio.create_task(create_all(scene, [scene.pod(f"p{number}", "100m") for number in range(300)], 4))
    await some_bound(scene, 50)
    await plane[0].restart("etcd")
    await creating
    await scene.nodes_of(within=90)
    await no_reservations_left(scene)


def _all_gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)
