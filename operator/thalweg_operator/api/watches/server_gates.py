"""The feature gates of devices: the defaults of the API server's version, and what the command line says instead."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Final

import msgspec
import structlog

from flowcore.model.device_gates import DeviceGates
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.errors import ConnectionLost, Refused

_log = structlog.get_logger()
_BACKOFF: Final = Backoff(first=0.5, longest=5.0)


class _Version(msgspec.Struct):
    git_version: str = msgspec.field(default="", name="gitVersion")


_versions = JsonReader(_Version)


async def read_device_gates(api_client: ApiClient, settings: Mapping[str, bool]) -> DeviceGates:
    """The gates that the objects of this API server are read with. Where it does not say its version, all are on.

    Args:
        settings: gate -> whether it is on, whatever the version is.
    """
    version = await _version(api_client)
    gates = DeviceGates.of_server(version, settings)
    if gates.off:
        _log.info("feature gates off", gates=sorted(gates.off), server_version=version)
    return gates


async def _version(api_client: ApiClient) -> str:
    """The API server's version; "": it does not say it."""
    for failures in itertools.count(1):
        try:
            return _versions.read(await api_client.request("GET", "/version")).git_version
        except UnreadableJson as error:
            problem = str(error)
        except Refused as error:
            problem = "" if error.transient else str(error)
        except ConnectionLost:
            problem = ""
        if problem:
            _log.warning("the API server's version is not known", problem=problem)
            break
        await asyncio.sleep(_BACKOFF.pause(failures))
    return ""
