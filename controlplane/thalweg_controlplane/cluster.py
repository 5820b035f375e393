"""A control plane on loopback. Tests can kill and restart its components."""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import aiohttp

from thalweg_controlplane.building.build import Binaries
from thalweg_controlplane.client.api import Api
from thalweg_controlplane.components import (
    API_SERVER,
    CONTROLLER_MANAGER,
    ETCD,
    KWOK,
    SCHEDULER,
    Features,
    Layout,
    Ports,
    argv,
)
from thalweg_controlplane.errors import ControlPlaneError
from thalweg_controlplane.processes import Child, until_ready
from thalweg_controlplane.work_folders import WorkFolder

_READY_SECONDS: Final = 120.0
"""A few seconds are usual; the rest is for busy machines."""


class ControlPlane:
    """etcd, kube-apiserver (TLS, RBAC) and, by choice, controller manager, kube-scheduler and KWOK.

    `async with ControlPlane(binaries) as plane:` enters when all components are ready. The components are named `etcd`,
    `kube-apiserver`, `kube-controller-manager`, `kube-scheduler` and `kwok`. Each keeps its port until the plane stops,
    and writes `<name>.log` into the workdir. A given workdir is kept, a temporary one removed
    (`WorkFolder`).
    `scheduler_config` is a KubeSchedulerConfiguration in which `{kubeconfig}`, quoted or not, stands for the path.
    `audit` makes the API server write `audit_log`; `scheduler_gates` are feature gates of kube-scheduler, `gates` those
    of API server and controller manager; `admission_off` names admission plugins that do not run.
    `stages_off` names files of stages/ that KWOK does not play.
    Raises ComponentFailed when a component does not become ready.
    """

    def __init__(
        self,
        binaries: Binaries,
        *,
        workdir: Path | None = None,
        controller_manager: bool = True,
        scheduler: bool = True,
        kwok: bool = True,
        scheduler_config: str | None = None,
        audit: bool = False,
        scheduler_gates: Sequence[str] = (),
        gates: Sequence[str] = (),
        admission_off: Sequence[str] = (),
        stages_off: Sequence[str] = (),
    ) -> None:
        self._binaries = binaries
        self._given_workdir = workdir
        self._components = [
            name
            for name, wanted in (
                (ETCD, True),
                (API_SERVER, True),
                (CONTROLLER_MANAGER, controller_manager),
                (SCHEDULER, scheduler),
                (KWOK, kwok),
            )
            if wanted
        ]
        self._scheduler_config, self._stages_off = scheduler_config, stages_off
        self._features = Features(controller_manager, audit, tuple(scheduler_gates), tuple(gates), tuple(admission_off))
        self._temporary: WorkFolder | None = None
        self._layout: Layout | None = None
        self._children: dict[str, Child] = {}

    async def __aenter__(self) -> Self:
        if self._given_workdir is None:
            self._temporary = WorkFolder("thalweg-plane-")
            workdir = self._temporary.path
        else:
            workdir = self._given_workdir
            workdir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._layout = layout = Layout(workdir.resolve(), _free_ports())
        try:
            layout.prepare(self._binaries, self._scheduler_config, self._stages_off)
            for name in self._components:
                command = argv(name, layout, self._binaries, self._features)
                self._children[name] = Child(name, command, layout.workdir / f"{name}.log")
            await self.start(ETCD)
            await self.start(API_SERVER)
            async with asyncio.TaskGroup() as group:
                for name in self._components[2:]:
                    group.create_task(self.start(name))
            await self.wait_ready()
        except BaseException as error:
            await self.stop()
            # A task group wraps its errors; the caller gets the error of the first failed component.
            if isinstance(error, BaseExceptionGroup) and isinstance(error.exceptions[0], ControlPlaneError):
                raise error.exceptions[0] from None
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def kubeconfig(self) -> Path:
        """Its user is in system:masters."""
        return self._open.kubeconfig

    @property
    def minor_version(self) -> str:
        """Of Kubernetes, such as 1.36."""
        return self._binaries.minor_version

    @property
    def url(self) -> str:
        """https://127.0.0.1:PORT of the API server."""
        return self._open.url

    @property
    def workdir(self) -> Path:
        """Where the logs, keys and etcd's data are."""
        return self._open.workdir

    @property
    def audit_log(self) -> Path:
        """A JSON line (audit.k8s.io/v1 Event) for each request of a service account, if `audit` was asked for."""
        return self._open.audit_log

    def metrics_url(self, component: str) -> str:
        """Where kube-scheduler or kube-controller-manager serves /metrics, readable without a token."""
        ports = self._open.ports
        port = {SCHEDULER: ports.scheduler, CONTROLLER_MANAGER: ports.controller_manager}[component]
        return f"https://127.0.0.1:{port}/metrics"

    @property
    def kwok_port(self) -> int:
        """Where KWOK plays the kubelets of its nodes, on 127.0.0.1 by HTTP and HTTPS."""
        return self._open.ports.kwok

    async def start(self, component: str) -> None:
        """Starts a component unless it runs, and waits until it is ready. The API server may be down meanwhile."""
        child = self._child(component)
        child.start()
        await until_ready(child, partial(self._ready, component), _READY_SECONDS)

    async def restart(self, component: str) -> None:
        """Stops a component cleanly, then starts it on the same port with the same data."""
        await self._child(component).stop()
        await self.start(component)

    def configure_scheduler(self, text: str) -> None:
        """Writes a new KubeSchedulerConfiguration; kube-scheduler reads it at its next start."""
        self._open.write_scheduler_config(text)

    async def kill(self, component: str) -> None:
        """Kills a component (SIGKILL). It has exited when this returns, and stays down until `start`."""
        self._child(component).kill()

    def pid(self, component: str) -> int:
        """The component's process id. Raises ControlPlaneError while it does not run."""
        pid = self._child(component).pid
        if pid is None:
            raise ControlPlaneError(f"the component {component!r} does not run")
        return pid

    async def wait_ready(self) -> None:
        """Waits until every component is ready, and until pods can be created in the namespace `default`."""
        for name, child in self._children.items():
            await until_ready(child, partial(self._ready, name), _READY_SECONDS)
        paths = ["/api/v1/namespaces/default"]
        if CONTROLLER_MANAGER in self._components:
            paths.append("/api/v1/namespaces/default/serviceaccounts/default")
        async with Api(self.kubeconfig) as api:
            for path in paths:
                await api.wait_for(path, lambda _: True, within=_READY_SECONDS, every=0.02)

    def check(self) -> None:
        """Raises ComponentFailed when a component has exited."""
        for child in self._children.values():
            child.check()

    async def stop(self) -> None:
        """Stops everything, clients before servers, and removes a temporary workdir. May be called again."""
        *servers, clients = [
            [self._children[name] for name in names if name in self._children]
            for names in ([ETCD], [API_SERVER], [CONTROLLER_MANAGER, SCHEDULER, KWOK])
        ]
        for children in [clients, *reversed(servers)]:
            await asyncio.gather(*(child.stop() for child in children))
        self._children.clear()
        self._layout = None
        if self._temporary is not None:
            self._temporary.remove()

    @property
    def _open(self) -> Layout:
        if self._layout is None:
            raise ControlPlaneError("the control plane is not running: use it in an `async with`")
        return self._layout

    def _child(self, component: str) -> Child:
        if component not in self._children:
            raise ControlPlaneError(f"no component {component!r} runs here; there are {sorted(self._children)}")
        return self._children[component]

    async def _ready(self, component: str) -> bool:
        layout = self._open
        url = {
            ETCD: f"http://127.0.0.1:{layout.ports.etcd}/health",
            API_SERVER: f"{layout.url}/readyz",
            CONTROLLER_MANAGER: f"https://127.0.0.1:{layout.ports.controller_manager}/healthz",
            SCHEDULER: f"https://127.0.0.1:{layout.ports.scheduler}/readyz",
            KWOK: f"http://127.0.0.1:{layout.ports.kwok}/readyz",
        }[component]
        return await _responds(url, layout.certificate)


async def _responds(url: str, certificate: Path) -> bool:
    """Whether the URL answers 200. False also while the certificate is missing or half written."""
    try:
        tls = ssl.create_default_context(cafile=certificate) if url.startswith("https:") else True
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
            session.get(url, ssl=tls) as answer,
        ):
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False


def _free_ports() -> Ports:
    """Ports that are free now. All sockets stay open until the last port is chosen, so that the ports differ."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in Ports.__dataclass_fields__]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return Ports(*(sock.getsockname()[1] for sock in sockets))
