"""The release of the chart on a cluster whose kubelet runs the image: installed, used, uninstalled."""

import asyncio
import base64
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.cluster_checks import PodHistory, check_history
from support.cluster_listing import Identity, everything
from support.helm import CHART, NAMESPACE, Helm, HelmError, Manifest
from support.kubelet import NODE, Kubelet
from support.operator import until
from thalweg_controlplane import Api, ControlPlane

#: Keeps the pods of tests off the node where Thalweg's own pods run.
TAINT: Final = {"key": "thalweg-only", "effect": "NoSchedule", "value": "yes"}
#: Seconds for what takes a minute at most on an idle machine: a busy one has ten times as long.
WITHIN: Final = 600.0
_VALUES: Final[dict[str, Any]] = {
    "crds.keep": False,  # the next test begins with nothing
    "image": {"repository": "thalweg", "tag": "test"},
    "secondScheduler.image": {"repository": "kube-scheduler", "tag": "test"},
    "nodeSelector": {"kubernetes.io/hostname": NODE},
    "tolerations": [{"key": TAINT["key"], "operator": "Exists"}],
    "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}},
}
_PODS: Final = "/api/v1/namespaces/default/pods"


@dataclass(frozen=True)
class Release:
    """What the tests of a module share."""

    plane: ControlPlane
    api: Api
    kubelet: Kubelet
    client: Helm

    async def helm(self, command: str, *words: str | Path, **values: Any) -> str:
        """A helm command about the release, with these values beside those of the tests."""
        given = self.client.values({**_VALUES, **values}) if command in ("install", "upgrade") else ()
        chart = (CHART, "--wait") if command in ("install", "upgrade") else ()
        waits = () if command == "get" else ("--timeout", f"{WITHIN:.0f}s")
        every = (command, "thalweg", *chart, *words, "--namespace", NAMESPACE, *waits, *given)
        run = self.client.run
        return await asyncio.to_thread(run, *every, kubeconfig=self.plane.kubeconfig, timeout=2 * WITHIN)

    @asynccontextmanager
    async def installed(self, **values: Any) -> AsyncIterator[None]:
        """The release while the block runs. Then it is uninstalled, if the block has not, and nothing of it is left."""
        before = await self._lasting()
        try:
            await self.helm("install", **values)
            yield
            await self.helm("uninstall", "--wait", "--ignore-not-found")
        except BaseException:
            sys.stderr.write(self.kubelet.log(""))
            with contextlib.suppress(HelmError):  # the next test wants to install too
                await self.helm("uninstall", "--no-hooks", "--ignore-not-found")
            raise
        difference: set[Identity] = set()

        async def as_before() -> bool:
            nonlocal difference
            difference = await self._lasting() ^ before
            return not difference

        await until(as_before, WITHIN, lambda: f"{sorted(difference)} to be as before")

    async def _lasting(self) -> set[Identity]:
        """All objects but the pods of tests and the heartbeats of nodes."""
        passing = {("/api/v1/pods", "default"), ("/apis/coordination.k8s.io/v1/leases", "kube-node-lease")}
        return {each for each in await everything(self.api) if each[:2] not in passing}

    async def place(self, manifests: list[Manifest]) -> None:
        """Creates pods and waits until they are bound."""
        await self.api.create_many(manifests, 8)
        names = {each["metadata"]["name"] for each in manifests}
        waiting: list[str] = []

        async def bound() -> bool:
            nonlocal waiting
            found = {each["metadata"]["name"]: each for each in await self.api.list(_PODS)}
            waiting = sorted(name for name in names if not found[name]["spec"].get("nodeName"))
            return not waiting

        await until(bound, WITHIN, lambda: f"{waiting} to be bound")

    @asynccontextmanager
    async def arriving(self, make: Callable[[str], Manifest]) -> AsyncIterator[None]:
        """Pods arrive while the block runs. At the end all are bound, each once, and no node was overcommitted."""
        names: list[str] = []
        over = asyncio.Event()

        async def arrive() -> None:
            while not over.is_set():
                names.append(f"arriving-{len(names)}")
                await self.api.create(make(names[-1]))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), 0.5)

        async with PodHistory(self.api) as history:
            arrivals = asyncio.create_task(arrive())
            try:
                yield
                assert not arrivals.done(), "pods cannot be created"
            finally:
                over.set()  # not cancelled: a pod whose request is cut off may never come
                await asyncio.gather(arrivals, return_exceptions=True)

            def waiting() -> list[str]:
                bound = {history.seen[uid].partition("/")[2] for uid in history.nodes_of}
                return [name for name in names if name not in bound]

            await until(lambda: not waiting(), WITHIN, lambda: f"{waiting()} to be bound")
            check_history(history, await self.api.list("/api/v1/nodes"))

    async def bound_by(self, pod: str) -> str:
        """The component that reported the binding of a pod."""
        found: list[Manifest] = []

        async def reported() -> bool:
            nonlocal found
            about = f"involvedObject.name={pod},reason=Scheduled"
            found = await self.api.list("/api/v1/namespaces/default/events", fieldSelector=about)
            return bool(found)

        await until(reported, WITHIN, lambda: f"an Event about {pod}")
        return str(found[0].get("reportingComponent") or found[0]["source"]["component"])

    async def remove_pods(self) -> None:
        """Deletes the pods of the tests."""
        await self.api.delete(_PODS, gracePeriodSeconds="0")
        await self.api.wait_for(_PODS, lambda page: not page["items"], within=WITHIN)

    async def secret(self, name: str) -> dict[str, bytes]:
        """The data of a Secret of the release."""
        found = await self.api.get(_secret_path(name))
        return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}

    async def replace_secret(self, name: str, data: dict[str, bytes]) -> None:
        """Changes keys of a Secret of the release."""
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        await self.api.patch(_secret_path(name), {"data": encoded})

    async def renew_certificates(self) -> None:
        """Does what the CronJob does when its hour comes, and waits for the end."""
        batch = f"/apis/batch/v1/namespaces/{NAMESPACE}"
        cron = await self.api.get(f"{batch}/cronjobs/thalweg-certificates")
        metadata = {"name": "renewal", "namespace": NAMESPACE}
        spec = cron["spec"]["jobTemplate"]["spec"]
        await self.api.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
        await self.api.wait_for(f"{batch}/jobs/renewal", lambda job: job["status"].get("succeeded"), within=WITHIN)
        await self.api.delete(f"{batch}/jobs/renewal", propagationPolicy="Background")


def _secret_path(name: str) -> str:
    return f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}"
