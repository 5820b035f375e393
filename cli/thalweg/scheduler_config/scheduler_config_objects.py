"""The objects of a cluster that ``thalweg scheduler-config`` reads and writes: a Service and Secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from thalweg_operator.api.client import ApiClient, api_path
from thalweg_operator.errors import Refused

from thalweg.certificates.secret_store import SecretProblem, read_own_secret, read_secret, write_secret
from thalweg.certificates.secrets import CERTIFICATE, KEY, TRUSTED
from thalweg.option_types import NamespacedName

#: Key of the stored configuration.
STORED: Final = "scheduler.yaml"


class ServiceProblem(Exception):
    """A Service cannot be used; the message names it."""


async def service_url(api_client: ApiClient, service: NamespacedName) -> str:
    """URL of the extender behind a Service, by its cluster IP: kube-scheduler's host resolves no names of Services.

    Raises:
        ServiceProblem: it does not exist, or has no cluster IP or no port.
        Refused, ConnectionLost: the API server cannot be asked.
    """
    path = api_path("/api/v1/namespaces", service.namespace, "services", service.name)
    try:
        answer = await api_client.request("GET", path)
    except Refused as error:
        if error.status == 404:
            raise ServiceProblem(f"Service {service} does not exist") from error
        raise
    try:
        service_object: dict[str, Any] = msgspec.json.decode(answer)
        address, port = str(service_object["spec"]["clusterIP"]), int(service_object["spec"]["ports"][0]["port"])
    except (msgspec.DecodeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise ServiceProblem(f"Service {service} has no cluster IP or no port") from error
    if address in ("", "None"):
        raise ServiceProblem(f"Service {service} is headless: kube-scheduler's host needs a cluster IP")
    return f"https://[{address}]:{port}/extender" if ":" in address else f"https://{address}:{port}/extender"


async def client_certificates(api_client: ApiClient, name: NamespacedName) -> Mapping[str, bytes]:
    """What kube-scheduler shows and trusts: tls.crt, tls.key and ca.crt of a Secret.

    Raises:
        SecretProblem: it lacks one of them.
        Refused, ConnectionLost: the API server cannot be asked.
    """
    secret = await read_secret(api_client, name)
    missing = [key for key in (CERTIFICATE, KEY, TRUSTED) if not secret.data.get(key)]
    if missing:
        raise SecretProblem(
            f"Secret {name} has no {', '.join(missing)}: run `thalweg certificates`, or wait for what fills it"
        )
    return secret.data


async def store(api_client: ApiClient, name: NamespacedName, text: str) -> bool:
    """Stores the configuration in a Secret. Returns whether it changed.

    Raises:
        SecretProblem: the Secret is not ours, or another process changes it at the same time.
        Refused, ConnectionLost: the API server cannot be asked.
    """
    secret = await read_own_secret(api_client, name)
    data = {STORED: text.encode()}
    if secret.data == data:
        return False
    if not await write_secret(api_client, secret, data, "Opaque"):
        raise SecretProblem(f"Secret {name} was changed by somebody else at the same time: run this again")
    return True
