"""A small kubelet: runs the pods of one node of a real control plane, each container from the image by runc.

It knows what the chart's pods use: init containers, restart policies, the three probes over HTTP, volumes
(pod_volumes), security contexts, variables from fields of the pod, SIGTERM with grace. Pods have addresses of their own
(pod_network). Restarts pause for a second, not for minutes. kube-scheduler's image is not there: the control plane's
own executable on the image's Debian takes its place.
"""

import asyncio
import contextlib
import shutil
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
from support.containers import Container, ContainerSpec, remove_all
from support.helm import Manifest
from support.image import Image
from support.pod_network import HOST, PodNetwork, pod_network
from support.pod_volumes import MissingVolume, PodVolumes
from thalweg_controlplane import Api, ApiError, Binaries, ControlPlane
from thalweg_controlplane.client.objects import node

from flowcore.model.quantities import nanos, whole_from_nanos

NODE: Final = "kubelet"
_EVERY: Final = 0.2
_RESTART_PAUSE: Final = 1.0
_HEARTBEAT: Final = 5.0
_LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}"


@dataclass
class _ContainerState:
    """What is reported of one container."""

    name: str
    image: str
    restarts: int = 0
    started: bool = False
    ready: bool = False
    state: dict[str, Any] = field(default_factory=lambda: {"waiting": {"reason": "ContainerCreating"}})
    last: dict[str, Any] = field(default_factory=dict)

    def report(self) -> Manifest:
        return {
            "name": self.name,
            "image": self.image,
            "imageID": self.image,
            "restartCount": self.restarts,
            "started": self.started,
            "ready": self.ready,
            "state": self.state,
            "lastState": self.last,
        }


class _Pod:
    """One pod on the node, from its binding to its deletion."""

    def __init__(self, kubelet: "Kubelet", manifest: Manifest) -> None:
        self._kubelet, self._api, self.manifest = kubelet, kubelet.api, manifest
        metadata = manifest["metadata"]
        self.uid, self.name, self.namespace = metadata["uid"], metadata["name"], metadata["namespace"]
        self.path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
        self.folder = kubelet.folder / "pods" / self.uid
        self.stopping = asyncio.Event()
        self._started_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._phase, self._initialized, self._reported = "Pending", False, ""
        self._volumes = PodVolumes(kubelet.api, manifest, self.folder / "volumes", kubelet.authority)
        spec = manifest["spec"]
        self._inits = [_ContainerState(each["name"], each["image"]) for each in spec.get("initContainers", ())]
        self._mains = [_ContainerState(each["name"], each["image"]) for each in spec["containers"]]

    async def run(self) -> None:
        """Runs it until it has ended or is deleted, then lets the API server forget a deleted one."""
        network, self.address = await asyncio.to_thread(self._kubelet.network.add_pod)
        self._network = network
        upkeep = asyncio.create_task(self._keep_volumes())
        try:
            await self._run_containers()
            while not self.stopping.is_set():
                await self._report()
                await asyncio.sleep(_EVERY)
        finally:
            upkeep.cancel()
            await asyncio.gather(upkeep, return_exceptions=True)
            await asyncio.to_thread(self._kubelet.network.remove_pod, network, self.address)
        await self._report()
        with contextlib.suppress(ApiError):  # it may be gone
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
            await self._api.request("DELETE", self.path, options)

    async def _run_containers(self) -> None:
        spec, policy = self.manifest["spec"], self.manifest["spec"]["restartPolicy"]
        await self._wait_for_volumes()
        for container, state in zip(spec.get("initContainers", ()), self._inits, strict=True):
            if not await self._run_container(container, state, "Never" if policy == "Never" else "OnFailure"):
                self._phase = "Pending" if self.stopping.is_set() else "Failed"
                return
        if self.stopping.is_set():
            return
        self._initialized, self._phase = True, "Running"
        runs = [
            self._run_container(each, state, policy)
            for each, state in zip(spec["containers"], self._mains, strict=True)
        ]
        reports = asyncio.create_task(self._keep_reporting())
        try:
            succeeded = await asyncio.gather(*runs)
        finally:
            reports.cancel()
            await asyncio.gather(reports, return_exceptions=True)
        self._phase = "Succeeded" if all(succeeded) else "Failed"

    async def _run_container(self, container: Manifest, state: _ContainerState, policy: str) -> bool:
        """Runs it, again as its policy says; whether it succeeded at last."""
        while not self.stopping.is_set():
            running = self._kubelet.container(self, container, self._volumes, self._network, state.restarts)
            await running.start()
            state.state = {"running": {"startedAt": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}}
            await self._report()
            code = await self._attend(running, container, state)
            state.started = state.ready = False
            ended = {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}}
            state.state = ended
            await self._report()
            if policy == "Never" or (policy == "OnFailure" and code == 0) or self.stopping.is_set():
                return code == 0
            state.last, state.restarts = ended, state.restarts + 1
            state.state = {"waiting": {"reason": "CrashLoopBackOff"}}
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), _RESTART_PAUSE)
        return False

    async def _attend(self, running: Container, container: Manifest, state: _ContainerState) -> int:
        """Probes a container until it ends, by itself, by its probes or because the pod is deleted; the exit code."""
        end = asyncio.create_task(running.wait())
        stop = asyncio.create_task(self.stopping.wait())
        probing = asyncio.create_task(self._probe_all(container, state))
        try:
            await asyncio.wait({end, stop, probing}, return_when=asyncio.FIRST_COMPLETED)
            if not end.done():
                state.ready = False
                grace = self.manifest["metadata"].get(
                    "deletionGracePeriodSeconds", self.manifest["spec"]["terminationGracePeriodSeconds"]
                )
                await asyncio.to_thread(running.kill, signal.SIGTERM)
                done, _ = await asyncio.wait({end}, timeout=grace)
                if not done:
                    await asyncio.to_thread(running.kill, signal.SIGKILL)
            return await end
        finally:
            for task in (stop, probing):
                task.cancel()
            await asyncio.gather(stop, probing, return_exceptions=True)

    async def _probe_all(self, container: Manifest, state: _ContainerState) -> None:
        """Returns when the container is to be killed."""
        if "startupProbe" in container and not await self._until_failed(container, "startupProbe", once=True):
            return
        state.started = True
        if "readinessProbe" not in container:
            state.ready = True
        tasks = [asyncio.create_task(self._keep_ready(container, state))]
        if "livenessProbe" in container:
            tasks.append(asyncio.create_task(self._until_failed(container, "livenessProbe", once=False)))
        else:
            tasks.append(asyncio.create_task(asyncio.Event().wait()))
        try:
            await tasks[1]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_ready(self, container: Manifest, state: _ContainerState) -> None:
        probe = container.get("readinessProbe")
        while probe is not None:
            state.ready = await self._answers(container, probe)
            await asyncio.sleep(min(probe["periodSeconds"], 1))  # more often than asked for: tests wait for it

    async def _until_failed(self, container: Manifest, kind: str, *, once: bool) -> bool:
        """False after as many failures in a row as the probe allows; with ``once`` True after the first success."""
        probe, failures = container[kind], 0
        while failures < probe["failureThreshold"]:
            if await self._answers(container, probe):
                if once:
                    return True
                failures = 0
            else:
                failures += 1
            await asyncio.sleep(probe["periodSeconds"])
        return False

    async def _answers(self, container: Manifest, probe: Manifest) -> bool:
        request = probe["httpGet"]
        ports = {each.get("name"): each["containerPort"] for each in container.get("ports", ())}
        port = ports.get(request["port"], request["port"])
        url = f"{request.get('scheme', 'HTTP').lower()}://{self.address}:{port}{request['path']}"
        try:
            timeout = aiohttp.ClientTimeout(total=max(probe["timeoutSeconds"], 5))
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, ssl=False) as answer:
                return 200 <= answer.status < 400
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def _wait_for_volumes(self) -> None:
        while not self.stopping.is_set():
            try:
                await self._volumes.refresh()
            except (MissingVolume, ApiError):
                await self._report()
                await asyncio.sleep(_EVERY)
            else:
                return

    async def _keep_volumes(self) -> None:
        while True:
            await asyncio.sleep(1)
            with contextlib.suppress(MissingVolume, ApiError):
                await self._volumes.refresh()

    async def _keep_reporting(self) -> None:
        while True:
            await self._report()
            await asyncio.sleep(_EVERY)

    async def _report(self) -> None:
        ready = self._phase == "Running" and all(each.ready for each in self._mains)
        known = [each for each in self.manifest["status"].get("conditions", ()) if each["type"] == "PodScheduled"]
        values = {"Initialized": self._initialized, "ContainersReady": ready, "Ready": ready}
        status = {
            "phase": self._phase,
            "startTime": self._started_at,
            "hostIP": HOST,
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "conditions": [*known, *({"type": kind, "status": str(value)} for kind, value in values.items())],
            "initContainerStatuses": [each.report() for each in self._inits],
            "containerStatuses": [each.report() for each in self._mains],
        }
        if str(status) == self._reported:
            return
        with contextlib.suppress(ApiError):
            await self._api.patch(f"{self.path}/status", {"metadata": {"uid": self.uid}, "status": status})
            self._reported = str(status)


class Kubelet:
    """See the module; ``running_kubelet`` makes it."""

    def __init__(
        self, plane: ControlPlane, api: Api, network: PodNetwork, image: Image, binaries: Binaries, folder: Path
    ) -> None:
        self.api, self.network, self.folder = api, network, folder
        self.authority = plane.workdir / "certs" / "apiserver.crt"
        self._image, self._kube_scheduler = image, _kube_scheduler(image, binaries, folder / "kube-scheduler")
        self._pods: dict[str, tuple[_Pod, asyncio.Task[None]]] = {}

    def log(self, pod: str) -> str:
        """All that the containers of pods whose name begins so have said."""
        logs = sorted(self.folder.glob(f"logs/{pod}*"))
        return "".join(f"--- {path.name}\n{path.read_text(errors='replace')}" for path in logs)

    def container(self, pod: _Pod, container: Manifest, volumes: PodVolumes, network: str, restarts: int) -> Container:
        """One run of a container of a pod."""
        image = self._kube_scheduler if "kube-scheduler" in container["image"] else self._image
        context = {**pod.manifest["spec"].get("securityContext", {}), **container.get("securityContext", {})}
        mounts: dict[str, tuple[Path, bool]] = {
            each["mountPath"]: (volumes.path(each["name"]), each.get("readOnly", False))
            for each in container.get("volumeMounts", ())
        }
        mounts["/etc/hosts"] = (self.network.hosts, True)
        limit = container.get("resources", {}).get("limits", {}).get("memory")
        name = f"{pod.name}-{container['name']}-{pod.uid[:8]}-{restarts}"
        logs = self.folder / "logs"
        logs.mkdir(exist_ok=True)
        spec = ContainerSpec(
            name=name,
            layers=image.layers,
            command=[*(container.get("command") or image.entrypoint), *container.get("args", ())],
            environment=[*image.environment, *_variables(pod.manifest, pod.address, container)],
            user=(context.get("runAsUser", 0), context.get("runAsGroup", 0)),
            groups=[context["fsGroup"]] if "fsGroup" in context else [],
            read_only=context.get("readOnlyRootFilesystem", False),
            mounts=mounts,
            network=network,
            memory=whole_from_nanos(nanos(limit)) if limit else 0,
        )
        return Container(spec, pod.folder / container["name"], logs / f"{pod.name}.{container['name']}")

    async def keep(self) -> None:
        """Runs the node's pods until it is cancelled, then ends all containers."""
        beat = 0.0
        try:
            while True:
                with contextlib.suppress(ApiError):
                    if time.monotonic() - beat > _HEARTBEAT:
                        await self._heartbeat()
                        beat = time.monotonic()
                    await self._look()
                await asyncio.sleep(_EVERY)
        finally:
            for _, task in self._pods.values():
                task.cancel()
            await asyncio.gather(*(task for _, task in self._pods.values()), return_exceptions=True)
            await asyncio.to_thread(remove_all)

    async def _look(self) -> None:
        found = await self.api.list("/api/v1/pods", fieldSelector=f"spec.nodeName={NODE}")
        there = {each["metadata"]["uid"]: each for each in found}
        for uid, manifest in there.items():
            if uid not in self._pods:
                pod = _Pod(self, manifest)
                self._pods[uid] = pod, asyncio.create_task(pod.run())
            pod, task = self._pods[uid]
            pod.manifest = manifest
            if "deletionTimestamp" in manifest["metadata"]:
                pod.stopping.set()
        for uid, (pod, task) in list(self._pods.items()):
            if uid not in there:
                pod.stopping.set()
            if task.done():
                del self._pods[uid]
                task.result()
                shutil.rmtree(pod.folder, ignore_errors=True)

    async def _heartbeat(self) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": NODE, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": NODE, "leaseDurationSeconds": 40, "renewTime": now},
        }
        await self.api.apply(lease)


def _variables(pod: Mapping[str, Any], address: str, container: Manifest) -> list[str]:
    fields = {
        "status.podIP": address,
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
    }
    values = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    for each in container.get("env", ()):
        values[each["name"]] = each.get("value", "")
        if "valueFrom" in each:
            values[each["name"]] = fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
    return [f"{name}={value}" for name, value in values.items()]


def _kube_scheduler(image: Image, binaries: Binaries, folder: Path) -> Image:
    """The control plane's executable under the name that kube-scheduler's image gives it."""
    programs = folder / "usr" / "bin"
    programs.mkdir(parents=True)
    shutil.copy(binaries.controlplane, programs / "controlplane")
    script = programs / "kube-scheduler"
    script.write_text('#!/bin/sh\nexec /usr/bin/controlplane kube-scheduler "$@"\n')
    script.chmod(0o755)
    base = image.base()
    return Image((*base.layers, folder), base.environment, ())


@asynccontextmanager
async def running_kubelet(
    plane: ControlPlane, api: Api, image: Image, binaries: Binaries, folder: Path
) -> AsyncIterator[Kubelet]:
    """A node ``kubelet`` and its kubelet, until the block is left."""
    await asyncio.to_thread(remove_all)
    async with pod_network(plane, api, folder) as network:
        disk = {"ephemeral-storage": "100Gi"}
        machine = node(NODE, cpu="16", memory="32Gi", labels={"kubernetes.io/os": "linux"}, extended=disk)
        del machine["metadata"]["annotations"]  # this one is not KWOK's
        await api.create(machine)
        kubelet = Kubelet(plane, api, network, image, binaries, folder)
        task = asyncio.create_task(kubelet.keep())
        try:
            yield kubelet
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await api.delete(f"/api/v1/nodes/{NODE}")
