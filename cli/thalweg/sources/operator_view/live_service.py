"""The Service that leads to the operator's view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
from thalweg_operator.api.client import ApiClient, api_path
from thalweg_operator.api.json_reading import JsonReader
from thalweg_operator.errors import Refused

from thalweg.option_types import NamespacedName
from thalweg.sources.source import SourceError

#: Labels that the chart gives the Service.
SELECTOR: Final = "app.kubernetes.io/name=thalweg,app.kubernetes.io/component=view"

#: The Service of a release named as the documentation does, and its port.
_CHARTS: Final = NamespacedName("thalweg-system", "thalweg-view")
_CHARTS_PORT: Final = 443


class _Metadata(msgspec.Struct):
    name: str
    namespace: str


class _Port(msgspec.Struct, rename="camel"):
    port: int
    name: str = ""
    app_protocol: str = ""


class _ServiceSpec(msgspec.Struct):
    ports: list[_Port] = []


class _Service(msgspec.Struct):
    metadata: _Metadata
    spec: _ServiceSpec


class _ServiceList(msgspec.Struct):
    items: list[_Service]


_one, _many = JsonReader(_Service), JsonReader(_ServiceList)


class NoView(SourceError):
    """No Service leads to a view: questions can be answered without an operator."""


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """Where the API server's proxy finds the view.

    Attributes:
        secure: whether it speaks TLS.
    """

    namespace: str
    name: str
    port: int
    secure: bool

    @property
    def proxy_path(self) -> str:
        """Path of the API server's proxy."""
        named = f"{'https:' if self.secure else ''}{self.name}:{self.port}"
        return f"{api_path('/api/v1/namespaces', self.namespace, 'services')}/{named}/proxy"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


#: As the chart makes it.
CHARTS_VIEW: Final = ServiceAddress(*_CHARTS, _CHARTS_PORT, secure=True)


async def find_service(client: ApiClient, named: NamespacedName | None) -> ServiceAddress:
    """The Service of this name, or the one with the chart's labels; as the chart makes it for who may not read it.

    What stands behind the Service answers for the operator. Anybody may give these labels to a Service of their own, so
    Services of one namespace alone are looked at.

    Raises:
        NoView: there is none.
        SourceError: there is more than one, or it has no port.
        Refused: the API server does not say.
        ConnectionLost: it does not answer.
    """
    try:
        if named is not None:
            path = api_path("/api/v1/namespaces", named.namespace, "services", named.name)
            return _address(_one.read(await client.request("GET", path)))
        path = api_path("/api/v1/namespaces", _CHARTS.namespace, "services")
        services = _many.read(await client.request("GET", path, params={"labelSelector": SELECTOR})).items
    except Refused as error:
        if error.status != 403:
            raise
        # Who may use the proxy need not be allowed to read Services.
        return ServiceAddress(*(named or _CHARTS), _CHARTS_PORT, secure=True)
    if not services:
        raise NoView(
            f"no Service of namespace {_CHARTS.namespace} has the labels {SELECTOR}. Install the chart with "
            "view.enabled=true, or name the view with --service NAMESPACE/NAME or --server URL"
        )
    if len(services) > 1:
        names = ", ".join(f"{each.metadata.namespace}/{each.metadata.name}" for each in services)
        raise SourceError(f"several Services lead to a view: {names}. Name one with --service NAMESPACE/NAME")
    return _address(services[0])


def _address(service: _Service) -> ServiceAddress:
    metadata, ports = service.metadata, service.spec.ports
    if not ports:
        raise SourceError(f"Service {metadata.namespace}/{metadata.name}: spec.ports: it has no port")
    port = next((each for each in ports if each.name in ("view", "https", "http")), ports[0])
    secure = port.name == "https" or port.app_protocol == "https"
    return ServiceAddress(metadata.namespace, metadata.name, port.port, secure)
