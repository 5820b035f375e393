"""Has a Service lead to the leader, the extender's or the view's: an EndpointSlice with the leader's address alone.

Clients ask the pod that the Service leads to, and a standby has no plan. Readiness of the pods cannot say who leads:
rollouts and disruption budgets would count standbys as broken (docs/decisions/0034). So the Service has no selector,
and each new leader applies the slice. It is applied again every few seconds, in case it was changed or deleted.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final

import msgspec
import structlog

from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import APPLY_PATCH, ApiClient, api_path
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.api.watches.catch_up import OwnPod
from thalweg_operator.constants import COMPONENT
from thalweg_operator.errors import ConnectionLost, Refused

_log = structlog.get_logger()
_GROUP: Final = "/apis/discovery.k8s.io/v1/namespaces"
#: Seconds between two applications.
_REFRESH: Final = 10.0
_BACKOFF: Final = Backoff(first=0.2, longest=10.0)


class _Meta(msgspec.Struct):
    uid: str


class _Port(msgspec.Struct):
    name: str = ""


class _ServiceSpec(msgspec.Struct, rename="camel"):
    selector: dict[str, str] | None = None
    ports: list[_Port] | None = None
    ip_families: list[str] | None = None


class _Service(msgspec.Struct):
    metadata: _Meta
    spec: _ServiceSpec = msgspec.field(default_factory=_ServiceSpec)


_services = JsonReader(_Service)


@dataclass(frozen=True, slots=True)
class LeaderEndpoint:
    """Where clients of a Service reach this process.

    Attributes:
        namespace, service: the Service, which has no selector and a port named ``port_name``.
        address: of this pod.
        port: that this process listens on.
        port_name: as the Service calls it.
        pod: this pod, of a Service that the API server's proxy leads to: the proxy reads the older kind Endpoints, and
            takes the addresses of pods only. A controller of the cluster makes the EndpointSlice of it. None: the
            EndpointSlice is written.
    """

    namespace: str
    service: str
    address: IPv4Address | IPv6Address
    port: int
    port_name: str = "extender"
    pod: OwnPod | None = None

    def problem_of(self, spec: _ServiceSpec) -> str:
        """Why the Service cannot lead here alone; "": it can."""
        name = f"Service {self.namespace}/{self.service}"
        family = f"IPv{self.address.version}"
        if spec.selector:
            return f"{name} has spec.selector, so it leads to standbys too: remove the selector"
        if all(port.name != self.port_name for port in spec.ports or ()):
            return f'{name} has no port "{self.port_name}" in spec.ports: give its port this name'
        if spec.ip_families and family not in spec.ip_families:
            return (
                f"{name} has spec.ipFamilies {', '.join(spec.ip_families)}, but the pod's address {self.address} is "
                f"{family}: make the Service with the family {family}"
            )
        return ""

    @property
    def path(self) -> str:
        """Path of the slice."""
        if self.pod is not None:
            return api_path("/api/v1/namespaces", self.namespace, "endpoints", self.service)
        return api_path(_GROUP, self.namespace, "endpointslices", f"{self.service}-leader")

    def manifest(self, service_uid: str) -> dict[str, Any]:
        """What is written; the garbage collector removes it with the Service."""
        owner = {"apiVersion": "v1", "kind": "Service", "name": self.service, "uid": service_uid}
        if self.pod is not None:
            pod = {"kind": "Pod", "namespace": self.pod.namespace, "name": self.pod.name}
            address = {"ip": str(self.address), "targetRef": pod}
            ports = [{"name": self.port_name, "port": self.port, "protocol": "TCP"}]
            return {
                "apiVersion": "v1",
                "kind": "Endpoints",
                "metadata": {"name": self.service, "namespace": self.namespace, "ownerReferences": [owner]},
                "subsets": [{"addresses": [address], "ports": ports}],
            }
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{self.service}-leader",
                "namespace": self.namespace,
                "labels": {
                    "kubernetes.io/service-name": self.service,
                    "endpointslice.kubernetes.io/managed-by": COMPONENT,
                },
                "ownerReferences": [owner],
            },
            "addressType": f"IPv{self.address.version}",
            "endpoints": [{"addresses": [str(self.address)], "conditions": {"ready": True}}],
            "ports": [{"name": self.port_name, "port": self.port, "protocol": "TCP"}],
        }


class _UnfitService(Exception):
    """The Service cannot lead to one process."""


class EndpointWriter:
    """Keeps the EndpointSlice, or the Endpoints, as they must be while this process leads."""

    def __init__(self, api_client: ApiClient, endpoint: LeaderEndpoint) -> None:
        self._api_client, self._endpoint = api_client, endpoint
        self._topic = f"{endpoint.port_name} endpoints"
        self._path = endpoint.path
        self._service = api_path("/api/v1/namespaces", endpoint.namespace, "services", endpoint.service)

    async def run(self) -> None:
        """Applies it until cancelled, while the Service is as it must be."""
        failures, applied = 0, False
        while True:
            try:
                await self._apply()
            except Refused as error:
                failures += 1
                self._api_client.outages.failed(self._topic, str(error.status), error.reason, transient=error.starting)
            except ConnectionLost:
                failures += 1  # the client logs it
            except UnreadableJson as error:
                failures += 1
                self._api_client.outages.failed(self._topic, "not understood", f"not a Service: {error}")
            except _UnfitService as error:
                failures += 1
                self._api_client.outages.failed(self._topic, "Service", str(error))
            else:
                failures = 0
                self._api_client.outages.recovered(self._topic)
                if not applied:
                    applied = True
                    where = f"{self._endpoint.namespace}/{self._endpoint.service}"
                    _log.info("Service leads here", service=where, address=str(self._endpoint.address))
            await asyncio.sleep(_BACKOFF.pause(failures) if failures else _REFRESH)

    async def _apply(self) -> None:
        service = _services.read(await self._api_client.request("GET", self._service))
        problem = self._endpoint.problem_of(service.spec)
        if problem:
            raise _UnfitService(problem)
        body = msgspec.json.encode(self._endpoint.manifest(service.metadata.uid))
        try:
            await self._patch(body)
        except Refused as error:
            if error.status != 422:
                raise
            # The type of the addresses cannot be changed: an earlier leader had the other one.
            await self._api_client.request("DELETE", self._path)
            await self._patch(body)

    async def _patch(self, body: bytes) -> None:
        params = {"fieldManager": COMPONENT, "force": "true"}
        await self._api_client.request("PATCH", self._path, body=body, content_type=APPLY_PATCH, params=params)
