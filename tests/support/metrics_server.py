"""A real metrics-server behind the API server of a control plane, which scrapes the kubelets that KWOK plays."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.operator import free_address, until
from thalweg_controlplane import Api, ApiError, ControlPlane
from thalweg_controlplane.client.objects import node
from thalweg_controlplane.processes import Child

PATH = "/apis/metrics.k8s.io/v1beta1"
_SERVICE = {"name": "metrics-server", "namespace": "kube-system"}
#: Seconds between two scrapes: metrics-server takes no less.
_RESOLUTION = 10


def measurable_node(plane: ControlPlane, name: str, **options: Any) -> dict[str, Any]:
    """A node whose kubelet metrics-server finds at KWOK."""
    made = node(name, **options)
    path = f"/metrics/nodes/{name}/metrics/resource"
    made["metadata"]["annotations"]["metrics.k8s.io/resource-metrics-path"] = path
    made["status"]["addresses"] = [{"type": "InternalIP", "address": "127.0.0.1"}]
    made["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": plane.kwok_port}}
    return made


def using(cpu: str, memory: str = "64Mi") -> dict[str, str]:
    """Annotations of a pod that uses so much."""
    return {"kwok.x-k8s.io/usage-cpu": cpu, "kwok.x-k8s.io/usage-memory": memory}


class MetricsServer:
    """The process, and its registration with the API server."""

    def __init__(self, executable: Path, folder: Path, plane: ControlPlane, api: Api) -> None:
        port = free_address().rpartition(":")[2]
        self._api, self._port = api, int(port)
        self._child = Child(
            "metrics-server",
            [
                executable,
                f"--kubeconfig={plane.kubeconfig}",
                f"--authentication-kubeconfig={plane.kubeconfig}",
                f"--authorization-kubeconfig={plane.kubeconfig}",
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                f"--cert-dir={folder / 'certs'}",
                "--kubelet-insecure-tls",
                "--kubelet-use-node-status-port",
                "--kubelet-preferred-address-types=InternalIP",
                f"--metric-resolution={_RESOLUTION}s",
                "--kubelet-request-timeout=5s",
            ],
            folder / "metrics-server.log",
        )

    async def register(self) -> None:
        """Tells the API server where it is, whether it runs or not."""
        await self._api.create(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": _SERVICE,
                "spec": {"type": "ExternalName", "externalName": "localhost"},
            }
        )
        await self._api.create(
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": "v1beta1.metrics.k8s.io"},
                "spec": {
                    "group": "metrics.k8s.io",
                    "version": "v1beta1",
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "insecureSkipTLSVerify": True,
                    "service": {**_SERVICE, "port": self._port},
                },
            }
        )

    async def start(self) -> None:
        """Starts it; returns when the API server reaches it."""
        self._child.start()

        async def served() -> bool:
            self._child.check()
            try:
                await self._api.get(f"{PATH}/nodes")
            except ApiError:
                return False
            return True

        await until(served, 90, lambda: f"metrics-server to be served:\n{self._child.tail()}")

    async def stop(self) -> None:
        """Ends it; its registration stays."""
        await self._child.stop()

    async def unregister(self) -> None:
        """The API server forgets it."""
        await self._api.delete("/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io")
        await self._api.delete(f"/api/v1/namespaces/{_SERVICE['namespace']}/services/{_SERVICE['name']}")


@asynccontextmanager
async def metrics_server(executable: Path, folder: Path, plane: ControlPlane, api: Api) -> AsyncIterator[MetricsServer]:
    """One that is not registered and not started yet."""
    server = MetricsServer(executable, folder, plane, api)
    try:
        yield server
    finally:
        await server.stop()
