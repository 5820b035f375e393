"""The API server's version: its rules and the defaults of its feature gates are those that objects are read by."""

from __future__ import annotations

import asyncio
import itertools
from typing import Final

import msgspec
import structlog

from flowcore.model.kubernetes_version import KNOWN, KubernetesVersion
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.errors import ConnectionLost, Refused

_log = structlog.get_logger()
_BACKOFF: Final = Backoff(first=0.5, longest=5.0)
#: Seconds from one look at the version to the next.
_PERIOD: Final = 300.0


class _Version(msgspec.Struct):
    git_version: str = msgspec.field(default="", name="gitVersion")


_versions = JsonReader(_Version)


async def read_version(api_client: ApiClient) -> KubernetesVersion:
    """The version, once the API server answers; that of an empty text where it does not say it.

    The log says which rules are not the server's own.
    """
    version = KubernetesVersion(await _text(api_client))
    if not version.is_known:
        _log.warning("the API server's version is not a known one", **_said(version))
    return version


async def watch_version(api_client: ApiClient, version: KubernetesVersion, period: float = _PERIOD) -> None:
    """Says it once if the API server comes to have other rules: objects were read by the former ones.

    Args:
        version: whose rules are in force.
        period: seconds.
    """
    said = version
    while True:
        await asyncio.sleep(period)
        now = KubernetesVersion(await _text(api_client))
        if now.minor is not None and now.rules not in (version.rules, said.rules):
            _log.warning(
                "the API server has another version now: restart Thalweg to follow its rules",
                before=version.text,
                **_said(now),
            )
            said = now


def _said(version: KubernetesVersion) -> dict[str, str]:
    return {"server_version": version.text, "rules": f"1.{version.rules}", "known": f"1.{KNOWN[0]} to 1.{KNOWN[-1]}"}


async def _text(api_client: ApiClient) -> str:
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
            _log.warning("the API server's version cannot be read", problem=problem)
            break
        await asyncio.sleep(_BACKOFF.pause(failures))
    return ""
