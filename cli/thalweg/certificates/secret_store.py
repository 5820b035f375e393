"""Secrets that commands keep in a cluster: read, and written only as they were read."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from thalweg_operator.api.client import MERGE_PATCH, ApiClient, api_path
from thalweg_operator.errors import Refused

from thalweg.option_types import NamespacedName

#: Marks the Secrets that Thalweg's commands may write.
LABEL: Final = "scheduling.thalweg/secret"


class SecretProblem(Exception):
    """A Secret cannot be used; the message names it and says what to do."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A Secret as it was read.

    Attributes:
        name: where it is.
        version: its resourceVersion; "": it does not exist.
        data: its contents, decoded.
    """

    name: NamespacedName
    version: str
    data: Mapping[str, bytes]


async def read_secret(api_client: ApiClient, name: NamespacedName) -> Secret:
    """Reads a Secret, also one of others.

    Raises:
        Refused, ConnectionLost: the API server cannot be asked.
    """
    secret, _ = await _read(api_client, name)
    return secret


async def read_own_secret(api_client: ApiClient, name: NamespacedName) -> Secret:
    """Reads a Secret that is to be written.

    Raises:
        SecretProblem: the Secret is not ours: it has data, and not the label.
        Refused, ConnectionLost: the API server cannot be asked.
    """
    secret, own = await _read(api_client, name)
    if not own:
        raise SecretProblem(
            f"Secret {name} has data and no label {LABEL}: somebody else filled it, so it is not overwritten. Name "
            f"another Secret, or give it up: kubectl -n {name.namespace} label secret {name.name} {LABEL}=true"
        )
    return secret


async def write_secret(api_client: ApiClient, read: Secret, data: Mapping[str, bytes], kind: str) -> bool:
    """Gives a Secret this data in place of what was read; False: it has changed since, so nothing was written.

    Args:
        read: what ``read_own_secret`` returned.
        kind: type of the Secret, if it is created here.

    Raises:
        Refused, ConnectionLost: the API server did not take it.
    """
    encoded: dict[str, str | None] = {key: base64.b64encode(value).decode() for key, value in data.items()}
    try:
        if read.version:
            gone = {key: None for key in read.data if key not in data}
            metadata = {"resourceVersion": read.version, "labels": {LABEL: "true"}}
            patch = {"metadata": metadata, "data": encoded | gone}
            await api_client.request(
                "PATCH", _path(read.name), body=msgspec.json.encode(patch), content_type=MERGE_PATCH
            )
        else:
            secret = {
                "apiVersion": "v1",
                "kind": "Secret",
                "type": kind,
                "metadata": {"name": read.name.name, "labels": {LABEL: "true"}},
                "data": encoded,
            }
            await api_client.request("POST", _collection(read.name), body=msgspec.json.encode(secret))
    except Refused as error:
        if error.status == 409:
            return False
        raise
    return True


def _collection(name: NamespacedName) -> str:
    return api_path("/api/v1/namespaces", name.namespace, "secrets")


def _path(name: NamespacedName) -> str:
    return api_path(_collection(name), name.name)


async def _read(api_client: ApiClient, name: NamespacedName) -> tuple[Secret, bool]:
    """The Secret, and whether it may be written."""
    try:
        answer = await api_client.request("GET", _path(name))
    except Refused as error:
        if error.status == 404:
            return Secret(name, "", {}), True
        raise
    try:
        secret: dict[str, Any] = msgspec.json.decode(answer)
        metadata = secret["metadata"]
        data = {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}
        own = not data or LABEL in (metadata.get("labels") or {})
        return Secret(name, str(metadata["resourceVersion"]), data), own
    except (msgspec.DecodeError, binascii.Error, KeyError, TypeError, AttributeError) as error:
        raise SecretProblem(f"the API server's answer about Secret {name} is no Secret: {error!r}") from error
