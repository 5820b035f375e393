"""Brings a standby's snapshot up to date after it has acquired the lease.

A watch may lag: the last bindings of the previous leader may not be in the snapshot yet, and their room would look
free. The API server gives no way to ask whether a watch is up to date. So this process changes an annotation of its own
pod: once its watch of pods shows that change, it has shown all changes before it. Where the process runs in no pod, or
the change is not seen soon, pods are listed again, which takes longer on large clusters.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import structlog

from thalweg_operator.api.client import MERGE_PATCH, ApiClient, pod_path
from thalweg_operator.api.json_reading import UnreadableJson
from thalweg_operator.api.reflector import Reflector
from thalweg_operator.api.watch_messages import OBJECTS
from thalweg_operator.constants import LEADS_SINCE
from thalweg_operator.errors import OperatorError

_log = structlog.get_logger()
#: Seconds after which a change of our pod that was not seen is not waited for.
_SHOWN: Final = 2.0
#: Seconds between two looks at the reflector.
_LOOK: Final = 0.005


@dataclass(frozen=True, slots=True)
class OwnPod:
    """The pod that this process runs in."""

    namespace: str
    name: str


class CatchUp:
    """See the module."""

    def __init__(self, api_client: ApiClient, pods: Reflector[Any], own_pod: OwnPod | None) -> None:
        self._api_client, self._pods, self._own_pod = api_client, pods, own_pod

    async def run(self, since: float) -> None:
        """Returns when the snapshot has all changes of pods that were made before ``since``.

        Args:
            since: a time of the event loop, now or earlier: when the lease was acquired.
        """
        if self._own_pod is not None and not self._listed(since):
            version = await self._mark(self._own_pod)
            try:
                async with asyncio.timeout(_SHOWN):
                    while self._pods.version < version:  # noqa: ASYNC110 - a reflector has no event for each version
                        await asyncio.sleep(_LOOK)
                    if version:
                        return
            except TimeoutError:
                _log.warning("the watch of pods lags, listing them again")
        while not self._listed(since):
            self._pods.relist()
            await asyncio.sleep(_LOOK)

    def _listed(self, since: float) -> bool:
        return self._pods.listed_at >= since

    async def _mark(self, pod: OwnPod) -> int:
        """ResourceVersion of a change of our pod; 0: it could not be changed."""
        body = msgspec.json.encode({"metadata": {"annotations": {LEADS_SINCE: datetime.now(UTC).isoformat()}}})
        path = pod_path(pod.namespace, pod.name, "status")
        try:
            raw = await self._api_client.request("PATCH", path, body=body, content_type=MERGE_PATCH)
            return int(OBJECTS.read(raw).metadata.resource_version)
        except (OperatorError, UnreadableJson, ValueError) as error:
            _log.warning(
                "own pod not marked, listing pods again", pod=f"{pod.namespace}/{pod.name}", problem=str(error)
            )
            return 0
