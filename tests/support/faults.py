"""The faults that Thalweg survives: what is broken, while pods arrive, and how long everything may take afterwards.

`tests/faults/test_faults.py` runs all; the table in docs/reference/failures.md has a row for each.
"""

import asyncio
import os
import resource
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aiohttp import web
from harness.attacks import Flood
from support.arrivals import create_all, some_bound
from support.cluster_scenario import POLICIES, ClusterScenario
from support.fake_api import refusal
from support.fault_world import FaultWorld
from support.jumping_clock import AHEAD, BACK
from support.operator import until
from support.proxy import Disturbance, Forward
from thalweg_controlplane import ControlPlane
from thalweg_controlplane.objects import node

from flowcore.model.policies import SCHEDULER_NAME

Strike = Callable[[FaultWorld, ClusterScenario], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    Attributes:
        name: as the table in docs/reference/failures.md has it.
        strike: breaks something while pods arrive; returns when it is mended.
        within: seconds after that in which every pod that can run is bound. For machines that are busy; usual times
            are in the table.
        slow: whether it takes too long for the default run.
    """

    name: str
    strike: Strike
    within: float = 60.0
    slow: bool = False


# --- the control plane ---


async def api_server_killed(world: FaultWorld, scene: ClusterScenario) -> None:
    await world.plane.kill("kube-apiserver")
    await world.plane.start("kube-apiserver")


def etcd_stopped(seconds: float) -> Strike:
    async def strike(world: FaultWorld, scene: ClusterScenario) -> None:
        pid = world.plane.pid("etcd")
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)

    return strike


def killed_for(component: str, seconds: float) -> Strike:
    async def strike(world: FaultWorld, scene: ClusterScenario) -> None:
        await world.plane.kill(component)
        await asyncio.sleep(seconds)
        await world.plane.start(component)

    return strike


# --- the way to the API server ---


def disturbed(disturbance: Disturbance, seconds: float) -> Strike:
    """Requests of the operator go through this for so many seconds."""

    async def strike(world: FaultWorld, scene: ClusterScenario) -> None:
        world.proxy.disturbance = disturbance
        try:
            await asyncio.sleep(seconds)
        finally:
            world.proxy.disturbance = None

    return strike


def is_watch(request: web.Request) -> bool:
    """Whether it asks for a stream of changes."""
    return "watch" in request.query


def is_binding(request: web.Request) -> bool:
    """Whether it binds a pod."""
    return request.method == "POST" and request.path.endswith("/binding")


async def cut_each_second(request: web.Request, forward: Forward) -> web.StreamResponse:
    """Ends watches after a second, wherever they are."""
    if not is_watch(request):
        return await forward(request)
    try:
        async with asyncio.timeout(1):
            return await forward(request)
    except TimeoutError:
        raise ConnectionResetError from None


async def watch_expired(request: web.Request, forward: Forward) -> web.StreamResponse:
    """Answers every watch with an event that says 410, as the API server does after etcd was compacted."""
    if not is_watch(request):
        return await forward(request)
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}
    return web.json_response({"type": "ERROR", "object": {**status, "message": "too old resource version"}})


def bindings_refused(status: int, **headers: str) -> Disturbance:
    """Answers bindings in place of the API server: none is carried out."""

    async def refuse(request: web.Request, forward: Forward) -> web.StreamResponse:
        return refusal(status, "made up", **headers) if is_binding(request) else await forward(request)

    return refuse


async def answers_lost(request: web.Request, forward: Forward) -> web.StreamResponse:
    """Bindings are carried out, and nobody says so."""
    if is_binding(request):
        await forward(request)
        raise ConnectionResetError
    return await forward(request)


async def takes_a_second(request: web.Request, forward: Forward) -> web.StreamResponse:
    """Every request takes a second longer."""
    await asyncio.sleep(1)
    return await forward(request)


async def line_cut(world: FaultWorld, scene: ClusterScenario) -> None:
    """Nothing passes and nothing is closed, for three seconds."""
    world.proxy.cut = True
    try:
        await asyncio.sleep(3)
    finally:
        world.proxy.cut = False


# --- the operator ---


async def operator_killed(world: FaultWorld, scene: ClusterScenario) -> None:
    await world.operator.kill()
    await world.operator.start()


async def worker_killed(world: FaultWorld, scene: ClusterScenario) -> None:
    """Three times."""
    for _ in range(3):
        (worker,) = await _worker(world)
        os.kill(worker, signal.SIGKILL)
        await _worker_gone(worker)


async def worker_hung(world: FaultWorld, scene: ClusterScenario) -> None:
    """SIGSTOP, for good: the operator has to notice, and to replace it."""
    (worker,) = await _worker(world)
    os.kill(worker, signal.SIGSTOP)
    await _worker_gone(worker)


async def worker_out_of_memory(world: FaultWorld, scene: ClusterScenario) -> None:
    """It gets no more memory than it has; pods of many classes make it ask for more."""
    (worker,) = await _worker(world)
    resource.prlimit(worker, resource.RLIMIT_DATA, (0, 0))
    await create_all(scene, [scene.pod(f"class-{at}", f"{at + 1}m", nodeSelector={"no": "node"}) for at in range(200)])
    await _worker_gone(worker)


async def clock_jumps(world: FaultWorld, scene: ClusterScenario) -> None:
    """The operator's wall clock: an hour ahead, an hour behind, and right again."""
    for way in (AHEAD, BACK, BACK, AHEAD):
        os.kill(world.operator.pid, way)
        await asyncio.sleep(0.5)


# --- the cluster ---


async def nodes_vanish(world: FaultWorld, scene: ClusterScenario) -> None:
    """Large nodes come, and go while bindings to them are on their way."""

    async def on_their_way(request: web.Request, forward: Forward) -> web.StreamResponse:
        if is_binding(request):
            await asyncio.sleep(0.1)
        return await forward(request)

    world.proxy.disturbance = on_their_way
    try:
        for at in range(10):
            await world.api.create(node(f"brief-{at}", cpu="64", pods=500, labels={"example.com/use": "single"}))
            await asyncio.sleep(0.15)
            await world.api.delete(f"/api/v1/nodes/brief-{at}")
    finally:
        world.proxy.disturbance = None


async def policy_flaps(world: FaultWorld, scene: ClusterScenario) -> None:
    """A policy of the binder's pods comes, changes its costs and goes, twenty times."""
    selects = {"schedulerNames": [SCHEDULER_NAME], "podSelector": {}}
    for at in range(20):
        await scene.policy("flapping", selects=selects, delivery="Observe" if at % 2 else "Binder")
        if at % 3 == 0:
            await world.api.delete(f"{POLICIES}/flapping")
    await scene.policy("flapping", selects=selects, delivery="Binder")


def pods_at_once(count: int) -> Strike:
    async def strike(world: FaultWorld, scene: ClusterScenario) -> None:
        await scene.nodes(*(f"large-{at}" for at in range(10)), cpu="1000", pods=count, labels={"example.com/use": "large"})
        pods = [scene.pod(f"many-{at}", "100m", nodeSelector={"example.com/use": "large"}) for at in range(count)]
        await create_all(scene, pods, 64)

    return strike


# --- kube-scheduler ---


async def extender_flooded(world: FaultWorld, scene: ClusterScenario) -> None:
    """10,000 bad requests a second, for three seconds."""
    host, _, port = world.relay.to.rpartition(":")
    flood = Flood(host, int(port), "/extender/filter", 10_000)
    await asyncio.to_thread(flood.__enter__)
    try:
        await asyncio.sleep(3)
    finally:
        await asyncio.to_thread(flood.__exit__)


async def _worker(world: FaultWorld) -> list[int]:
    """The worker, once there is one."""
    await until(world.operator.worker_pids, 30, lambda: "a worker")
    return world.operator.worker_pids()


async def _worker_gone(pid: int) -> None:
    await until(lambda: not Path(f"/proc/{pid}").exists(), 90, lambda: f"worker {pid} to be replaced")


FAULTS = (
    Fault("API server killed", api_server_killed),
    Fault("etcd hangs for 5 s", etcd_stopped(5)),
    Fault("etcd hangs for 30 s", etcd_stopped(30), slow=True),
    Fault("etcd down for 30 s", killed_for("etcd", 30), slow=True),
    Fault("watches cut every second", disturbed(cut_each_second, 4)),
    Fault("410 for every watch", disturbed(watch_expired, 4)),
    Fault("409 for every binding", disturbed(bindings_refused(409), 3)),
    Fault("404 for every binding", disturbed(bindings_refused(404), 3)),
    Fault("429 for every binding", disturbed(bindings_refused(429, **{"Retry-After": "1"}), 3)),
    Fault("answers to bindings lost", disturbed(answers_lost, 3)),
    Fault("API server takes a second for each request", disturbed(takes_a_second, 5)),
    Fault("API server cannot be reached", line_cut),
    Fault("operator killed", operator_killed),
    Fault("worker killed", worker_killed),
    Fault("worker hangs", worker_hung),
    Fault("worker out of memory", worker_out_of_memory),
    Fault("clock jumps by an hour", clock_jumps),
    Fault("nodes vanish", nodes_vanish),
    Fault("policy flaps", policy_flaps),
    Fault("2,000 pods at once", pods_at_once(2_000)),
    Fault("20,000 pods at once", pods_at_once(20_000), within=600, slow=True),
    Fault("extender flooded", extender_flooded),
    Fault("kube-scheduler killed", killed_for("kube-scheduler", 0)),
)
