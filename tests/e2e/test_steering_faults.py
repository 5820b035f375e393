"""Whatever becomes of the operator, of kube-scheduler, or of the way between them: nothing is lost or overcommitted."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from support.cluster_scenario import ClusterScenario
from support.operator import until
from support.steering import DelayingProxy, count, scheduler_config
from thalweg_controlplane import Api, ControlPlane

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"scheduler": True}
STEERED: dict[str, str] = {}


@asynccontextmanager
async def arriving(scene: ClusterScenario, pods: list[dict[str, object]], concurrency: int = 8) -> AsyncIterator[None]:
    """These pods are created, in order, while the block runs, and are all there when it is left."""
    creating = asyncio.create_task(scene.api.create_many(pods, concurrency))
    try:
        yield
    finally:
        await creating


async def some_bound(scene: ClusterScenario, number: int) -> None:
    await until(lambda: len(scene.history.nodes_of) >= number, 60, lambda: f"{number} pods to be bound")


async def test_the_operator_is_restarted_and_killed_half_way(scene: ClusterScenario) -> None:
    """Amid 300 pods that fill the cluster exactly: what was nominated is reserved again, and all are bound."""
    await scene.nodes(*(f"n{number}" for number in range(10)), cpu="3")
    pods = [scene.pod(f"p{number}", "100m") for number in range(300)]
    async with arriving(scene, pods, 4):
        await some_bound(scene, 40)
        await scene.operator.kill()
        await scene.operator.start()
        await some_bound(scene, 120)
        await scene.operator.stop()
        await scene.operator.start()
    assert len(await scene.nodes_of(within=60)) == 300


async def test_nominations_in_flight_are_reservations_again(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api]
) -> None:
    """While kube-scheduler is away pods are nominated; the operator, killed and back, keeps their room for them."""
    await scene.nodes("a", "b", cpu="2")
    await plane[0].kill("kube-scheduler")
    names = [f"p{number}" for number in range(3)]
    for name in names:
        await scene.create(name, "1")

    async def nominations() -> dict[str, str]:
        pods = await scene.pods()
        return {each["metadata"]["name"]: each["status"].get("nominatedNodeName", "") for each in pods}

    async def all_nominated() -> bool:
        return all((await nominations()).values())

    await until(all_nominated, 30, lambda: "all to be nominated")
    planned = await nominations()
    await scene.operator.kill()
    await scene.create("late", "2")
    await scene.operator.start()
    await until(lambda: scene.events_of("late"), 30, lambda: "the late one to be told")
    assert (await scene.operator.metrics())["thalweg_reservations"] == 3
    assert await nominations() == {**planned, "late": ""}
    await plane[0].start("kube-scheduler")
    assert await scene.nodes_of(*names) == planned
    assert "nodeName" not in (await scene.get("late"))["spec"]


async def test_an_extender_that_takes_two_seconds(scene: ClusterScenario, relay: DelayingProxy) -> None:
    """Slow, and no more than that: what was planned is bound as planned, one pod after the other."""
    await scene.nodes("a", "b", cpu="2")
    relay.delay = 2.0
    try:
        await scene.api.create_many([scene.pod(f"p{number}", "1") for number in range(2)])
        await scene.create("theirs", "1", scheduler="default-scheduler")
        await scene.nodes_of(within=60)
    finally:
        relay.delay = 0.0


async def test_a_strict_extender_is_gone(scene: ClusterScenario) -> None:
    """Without it all pods wait, unmanaged ones too; all are placed once it is back."""
    await scene.nodes("a", "b", cpu="2")
    await scene.operator.stop()
    await scene.create("ours", "1")
    await scene.create("theirs", "1", scheduler="default-scheduler")
    for name in ("ours", "theirs"):
        await scene.api.wait_for(
            scene.path(name),
            lambda each: any(c.get("reason") == "SchedulerError" for c in each["status"].get("conditions", ())),
        )
    assert not scene.history.nodes_of
    await scene.operator.start()
    await scene.nodes_of("ours", "theirs", within=60)


async def test_an_ignorable_extender_is_gone(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], relay: DelayingProxy
) -> None:
    """kube-scheduler goes on alone, with governed pods as with others; back again, the operator counts what runs."""
    config = plane[0].workdir / "scheduler.yaml"
    strict = config.read_text()
    ignorable = scheduler_config(relay, ignorable=True).replace("{kubeconfig}", str(plane[0].kubeconfig))
    await scene.nodes("a", "b", cpu="20")
    config.write_text(ignorable)
    try:
        await plane[0].restart("kube-scheduler")
        both = [("thalweg-steered", f"ours-{n}") for n in range(100)] + [
            ("default-scheduler", f"theirs-{n}") for n in range(100)
        ]
        random.Random(3).shuffle(both)
        async with arriving(scene, [scene.pod(name, "200m", scheduler=scheduler) for scheduler, name in both], 4):
            await some_bound(scene, 50)
            await scene.operator.kill()
            await some_bound(scene, 120)
        await scene.nodes_of(within=60)
        await scene.operator.start()
    finally:
        config.write_text(strict)
        await plane[0].restart("kube-scheduler")


async def test_both_deliveries_and_others_at_once(scene: ClusterScenario) -> None:
    """Bound by us, steered and unmanaged pods together fill the cluster exactly, the operator restarted meanwhile."""
    await scene.nodes(*(f"n{number}" for number in range(10)), cpu="3")
    names = ("thalweg", "thalweg-steered", "default-scheduler")
    pods = [scene.pod(f"p{number}", "100m", scheduler=names[number % 3]) for number in range(300)]
    async with arriving(scene, pods, 4):
        await some_bound(scene, 100)
        await scene.operator.kill()
        await scene.operator.start()
    assert len(await scene.nodes_of(within=90)) == 300


async def test_a_full_cluster_that_all_three_want(scene: ClusterScenario) -> None:
    """Twice as many pods as there is room for, and room that comes free again and again: none is ever given twice."""
    await scene.nodes(*(f"n{number}" for number in range(6)), cpu="2")
    names = ("thalweg", "thalweg-steered", "default-scheduler")
    pods = [scene.pod(f"p{number}", "250m", scheduler=names[number % 3]) for number in range(96)]
    draw = random.Random(11)

    def full(expected: int) -> Callable[[], object]:
        async def reached() -> bool:
            return sum(bool(each["spec"].get("nodeName")) for each in await scene.pods()) == expected

        return reached

    async with arriving(scene, pods, 16):
        await some_bound(scene, 40)
    await until(full(48), 30, lambda: "the cluster to be full")
    for _ in range(2):
        placed = [each["metadata"]["name"] for each in await scene.pods() if each["spec"].get("nodeName")]
        await scene.delete(*draw.sample(placed, 12))
        await until(full(48), 40, lambda: "the room to be taken")
    assert await count(scene.operator, "thalweg_extender_answers_total", "filter", "failed") == 0
