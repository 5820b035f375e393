"""Whatever happens to nodes and pods while they are placed: nothing is bound twice or overcommitted, no pod is lost."""

import asyncio
import random

import pytest
from support.arrivals import create_all, no_reservations_left, some_bound
from support.cluster_scenario import ClusterScenario
from support.operator import until
from support.retries import insist
from thalweg_controlplane import ApiError

pytestmark = pytest.mark.asyncio(loop_scope="module")


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
