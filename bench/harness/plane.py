"""A fresh control plane with nothing in it but etcd and the API server, and what a benchmark puts there."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

from thalweg.crds import custom_resource_definitions
from thalweg_controlplane import Api, ApiError, Binaries, ControlPlane, find_or_build
from thalweg_controlplane.client.objects import object_path, pod
from thalweg_operator.constants import POLICIES_PATH

from harness import admission
from harness.schedulers import KUBE_SCHEDULER, THALWEG

#: Requests under way at once while load is created.
CONCURRENCY = 64
_CHUNK = 2000
_SERVED_SECONDS = 30.0


def say(line: str) -> None:
    """One line of progress, for people."""
    print(line, file=sys.stderr, flush=True)


def binaries() -> Binaries:
    """The control plane's executables; the first time they are built, which takes minutes."""
    return find_or_build(say)


@asynccontextmanager
async def shared(executables: Binaries, scheduler_gates: Sequence[str] = ()) -> AsyncIterator[tuple[ControlPlane, Api]]:
    """A plane with our CRDs on which kube-scheduler, with whatever configuration, can be started again and again.

    Args:
        scheduler_gates: kube-scheduler's feature gates, such as `GangScheduling=true`.
    """
    async with (
        ControlPlane(
            executables, controller_manager=False, scheduler=True, kwok=False, scheduler_gates=scheduler_gates
        ) as plane,
        Api(plane.kubeconfig, connections=CONCURRENCY) as api,
    ):
        await plane.kill(KUBE_SCHEDULER)
        await _install_crds(api)
        yield plane, api


@asynccontextmanager
async def bare(
    executables: Binaries, scheduler: str, *, controllers: bool = False
) -> AsyncIterator[tuple[ControlPlane, Api]]:
    """A plane on which this scheduler can be started; none runs yet.

    Args:
        controllers: whether the controller manager runs; it wants kubelets, which KWOK plays.
    """
    wants_kube_scheduler = scheduler == KUBE_SCHEDULER
    async with (
        ControlPlane(
            executables, controller_manager=controllers, scheduler=wants_kube_scheduler, kwok=controllers
        ) as plane,
        Api(plane.kubeconfig, connections=CONCURRENCY) as api,
    ):
        if wants_kube_scheduler:
            await plane.kill(KUBE_SCHEDULER)  # started again, by the benchmark, when the load is there
        if scheduler == THALWEG:
            await _install_crds(api)
        yield plane, api


async def create(api: Api, manifests: Iterable[Mapping[str, Any]]) -> None:
    """Creates them as fast as the API server takes them, in order, without keeping the answers."""
    rest = iter(manifests)
    while chunk := list(islice(rest, _CHUNK)):
        await api.create_many(chunk, CONCURRENCY)


async def warm_up(api: Api, count: int) -> None:
    """Creates so many pods and deletes them, before any scheduler runs.

    The watch cache of a new API server is tiny, buffers ten events for each watch, and cuts watches right and left as
    soon as many pods come at once. It grows with use: afterwards it is more like that of a cluster that has lived.
    """
    pods = [pod(f"warm-up-{i:06}", "1m", "1Mi", scheduler="nobody") for i in range(count)]
    await create(api, pods)
    await delete(api, pods)


async def delete(api: Api, pods: Iterable[Mapping[str, Any]]) -> None:
    """Deletes pods at once, many at a time."""
    gate = asyncio.Semaphore(CONCURRENCY)

    async def one(manifest: Mapping[str, Any]) -> None:
        async with gate:
            await api.delete(object_path(manifest), gracePeriodSeconds="0")

    async with asyncio.TaskGroup() as group:
        for manifest in pods:
            group.create_task(one(manifest))


async def version(api: Api) -> str:
    """The resource version of now, to watch from."""
    page = await api.get("/api/v1/namespaces/default/pods", limit="1")
    return str(page["metadata"]["resourceVersion"])


def gate_admission() -> list[dict[str, Any]]:
    """The admission policy that gates pods, and its binding."""
    return admission.admission_policies(admission.GATES)


async def _install_crds(api: Api) -> None:
    for crd in custom_resource_definitions():
        await api.apply(crd)
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
        await api.wait_for(path, _established)
    # For about a second after that the API server still answers 429.
    async with asyncio.timeout(_SERVED_SECONDS):
        while not await _answers(api, POLICIES_PATH):  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.05)
    await admission.install(api, [admission.GATES])


async def _answers(api: Api, path: str) -> bool:
    try:
        await api.get(path)
    except ApiError:
        return False
    return True


def _established(crd: Mapping[str, Any]) -> bool:
    conditions = crd.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)
