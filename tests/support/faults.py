"""The faults that Thalweg survives: what is broken, while pods arrive, and how long everything may take afterwards.

`tests/faults/test_faults.py` runs all; the table in docs/reference/failures.md has a row for each.
"""

import asyncio
import os
import resource
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any

from aiohttp import web
from harness.attacks import Flood
from support.arrivals import create_all
from support.cluster_scenario import POLICIES, policy
from support.fake_api import refusal
from support.fault_world import FaultWorld, Load
from support.jumping_clock import AHEAD, BACK
from support.operator import until
from support.proxy import Disturbance, Forward, is_watch
from thalweg_controlplane.client.objects import node

from flowcore.model.policies import SCHEDULER_NAME

Strike = Callable[[FaultWorld, Load], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    Attributes:
        name: as the table in docs/reference/failures.md has it.
        strike: breaks something while pods arrive; returns when it is mended.
        within: seconds after that in which every pod that can run is bound. For machines that are busy; usual times
            are in the table.
        slow: whether it takes minutes.
    """

    name: str
    strike: Strike
    within: float = 45.0
    slow: bool = False


# --- the control plane ---


async def api_server_killed(world: FaultWorld, load: Load) -> None:
    await world.plane.kill("kube-apiserver")
    await world.plane.start("kube-apiserver")


def etcd_stopped(seconds: float) -> Strike:
    async def strike(world: FaultWorld, load: Load) -> None:
        pid = world.plane.pid("etcd")
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)

    return strike


def killed_for(component: str, seconds: float) -> Strike:
    async def strike(world: FaultWorld, load: Load) -> None:
        await world.plane.kill(component)
        await asyncio.sleep(seconds)
        await world.plane.start(component)

    return strike


# --- the way to the API server ---


def disturbed(which: Callable[[web.Request], bool], how: Disturbance, seconds: float) -> Strike:
    """Such requests of the operator go this way for so many seconds, and until there was one. Open watches end."""

    async def strike(world: FaultWorld, load: Load) -> None:
        disturbed = 0

        async def disturbance(request: web.Request, forward: Forward) -> web.StreamResponse:
            nonlocal disturbed
            if not which(request):
                return await forward(request)
            disturbed += 1
            return await how(request, forward)

        world.proxy.disturbance = disturbance
        world.proxy.end_watches()
        try:
            await asyncio.sleep(seconds)
            await until(lambda: disturbed, 30, lambda: "a request to disturb")
        finally:
            world.proxy.disturbance = None

    return strike


def is_any(_request: web.Request) -> bool:
    """All are."""
    return True


def is_binding_or_watch(request: web.Request) -> bool:
    """Whether it binds a pod or asks for a stream of changes."""
    return is_binding(request) or is_watch(request)


def is_binding(request: web.Request) -> bool:
    """Whether it binds a pod."""
    return request.method == "POST" and request.path.endswith("/binding")


async def cut_each_second(request: web.Request, forward: Forward) -> web.StreamResponse:
    """Ends it after a second, wherever it is."""
    try:
        async with asyncio.timeout(1):
            return await forward(request)
    except TimeoutError:
        raise ConnectionResetError from None


async def expired(_request: web.Request, _forward: Forward) -> web.StreamResponse:
    """A watch whose only event says 410, as the API server answers after etcd was compacted."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}
    return web.json_response({"type": "ERROR", "object": {**status, "message": "too old resource version"}})


def refused(*statuses: int) -> Disturbance:
    """Answers with these statuses in turn, in place of the API server: nothing is carried out."""
    turns = cycle(statuses)

    async def refuse(_request: web.Request, _forward: Forward) -> web.StreamResponse:
        status = next(turns)
        return refusal(status, "made up", **({"Retry_After": "1"} if status == 429 else {}))

    return refuse


def blind_and_refused(*statuses: int) -> Disturbance:
    """Answers watches with 500 and bindings with these statuses in turn; the binding after the last one passes."""
    refuse, passes = refused(*statuses), cycle((*[False] * len(statuses), True))

    async def answer(request: web.Request, forward: Forward) -> web.StreamResponse:
        if is_watch(request):
            return refusal(500, "made up")
        return await (forward(request) if next(passes) else refuse(request, forward))

    return answer


async def answer_lost(request: web.Request, forward: Forward) -> web.StreamResponse:
    """Carried out, and the answer does not arrive."""
    assert request.transport is not None
    answer = await forward(request)
    request.transport.abort()
    return answer


async def takes_a_second(request: web.Request, forward: Forward) -> web.StreamResponse:
    """Takes a second longer."""
    await asyncio.sleep(1)
    return await forward(request)


async def line_cut(world: FaultWorld, load: Load) -> None:
    """Nothing passes and nothing is closed, for three seconds."""
    world.proxy.cut = True
    try:
        await asyncio.sleep(3)
    finally:
        world.proxy.cut = False


# --- the operator ---


async def operator_killed(world: FaultWorld, load: Load) -> None:
    """Its workers end with it."""
    workers = await _workers(world)
    await world.operator.kill()
    for worker in workers:
        await _gone(worker)
    await world.operator.start()


async def worker_killed(world: FaultWorld, load: Load) -> None:
    """Three times."""
    for _ in range(3):
        (worker,) = await _workers(world)
        os.kill(worker, signal.SIGKILL)
        await _gone(worker)


async def worker_hung(world: FaultWorld, load: Load) -> None:
    """SIGSTOP, for good: the operator has to notice, and to replace it."""
    (worker,) = await _workers(world)
    os.kill(worker, signal.SIGSTOP)
    for path in ("/healthz", "/readyz", "/metrics"):
        assert (await world.operator.get(path))[0] == 200
    await _gone(worker)


async def worker_out_of_memory(world: FaultWorld, load: Load) -> None:
    """It gets no more memory than it has; pods of many classes make it ask for more.

    What it has already may do for small classes that come slowly. These are of 8 KiB, and come until it is gone.
    """
    (worker,) = await _workers(world)
    resource.prlimit(worker, resource.RLIMIT_DATA, (0, 0))
    numbers = count()

    async def asked_for_too_much() -> bool:
        await create_all(load.scene, [_of_a_large_class(load, number) for number in islice(numbers, 100)])
        await asyncio.sleep(1)
        return not _exists(worker)

    await until(asked_for_too_much, 90, lambda: f"worker {worker} to be replaced")


def _of_a_large_class(load: Load, number: int) -> dict[str, Any]:
    """A pod of a class of its own, which no node suits."""
    values = [f"{number:020}-{at:042}" for at in range(128)]
    terms = [{"matchExpressions": [{"key": "no", "operator": "In", "values": values}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    return load.scene.pod(f"class-{number}", affinity=affinity)


async def clock_jumps(world: FaultWorld, load: Load) -> None:
    """The operator's wall clock: an hour ahead, an hour behind, and right again."""
    for way in (AHEAD, BACK, BACK, AHEAD):
        os.kill(world.operator.pid, way)
        await asyncio.sleep(0.5)


# --- the cluster ---


async def nodes_vanish(world: FaultWorld, load: Load) -> None:
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


async def policy_flaps(world: FaultWorld, load: Load) -> None:
    """A policy of the binder's pods forbids to bind them, allows it, and goes, twenty times each."""
    selects = {"schedulerNames": [SCHEDULER_NAME], "podSelector": {}}
    for _ in range(20):
        for delivery in ("Observe", "Binder"):
            await world.api.apply(policy("flapping", selects=selects, delivery=delivery))
            await asyncio.sleep(0.03)
        await world.api.delete(f"{POLICIES}/flapping")


def pods_at_once(count: int) -> Strike:
    async def strike(world: FaultWorld, load: Load) -> None:
        use = {"example.com/use": "large"}
        await load.scene.nodes(*(f"large-{at}" for at in range(10)), cpu="1000", pods=count, labels=use)
        load.fitting += count
        pods = [load.scene.pod(f"many-{at}", "100m", nodeSelector=use) for at in range(count)]
        await create_all(load.scene, pods, 64)

    return strike


# --- kube-scheduler ---


async def extender_flooded(world: FaultWorld, load: Load) -> None:
    """10,000 bad requests a second, for three seconds."""
    host, _, port = world.relay.to.rpartition(":")
    flood = Flood(host, int(port), "/extender/filter", 10_000)
    await asyncio.to_thread(flood.__enter__)
    try:
        await asyncio.sleep(3)
    finally:
        await asyncio.to_thread(flood.__exit__)


async def _workers(world: FaultWorld) -> list[int]:
    """The worker, once there is one."""
    await until(world.operator.worker_pids, 30, lambda: "a worker")
    return world.operator.worker_pids()


async def _gone(pid: int) -> None:
    await until(lambda: not _exists(pid), 90, lambda: f"worker {pid} to be replaced")


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


FAULTS = (
    Fault("the API server is killed", api_server_killed),
    Fault("etcd hangs for 5 s", etcd_stopped(5), slow=True),
    Fault("etcd hangs for 30 s", etcd_stopped(30), slow=True),
    Fault("etcd is down for 30 s", killed_for("etcd", 30), slow=True),
    Fault("watches are cut every second", disturbed(is_watch, cut_each_second, 3)),
    Fault("every watch is answered with 410", disturbed(is_watch, expired, 3)),
    Fault("bindings are answered with 409, 404 and 429", disturbed(is_binding, refused(409, 404, 429), 2)),
    Fault(
        "bindings are answered with 409, 404 and 429, watches with 500",
        disturbed(is_binding_or_watch, blind_and_refused(409, 404, 429), 4),
        slow=True,
    ),
    Fault("answers to bindings are lost", disturbed(is_binding, answer_lost, 2)),
    Fault("each request takes a second longer", disturbed(is_any, takes_a_second, 4), slow=True),
    Fault("the API server cannot be reached", line_cut, slow=True),
    Fault("the operator is killed", operator_killed, slow=True),
    Fault("the worker is killed", worker_killed, slow=True),
    Fault("the worker hangs", worker_hung, slow=True),
    Fault("the worker runs out of memory", worker_out_of_memory, slow=True),
    Fault("the wall clock jumps by an hour", clock_jumps, slow=True),
    Fault("nodes vanish under planned pods", nodes_vanish, slow=True),
    Fault("a policy flaps", policy_flaps, slow=True),
    Fault("2,000 pods come at once", pods_at_once(2_000), within=120, slow=True),
    Fault("10,000 pods come at once", pods_at_once(10_000), within=600, slow=True),
    Fault("the extender is flooded", extender_flooded, slow=True),
    Fault("kube-scheduler is killed", killed_for("kube-scheduler", 0)),
)
