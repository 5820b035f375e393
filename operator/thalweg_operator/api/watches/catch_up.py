"""Brings a standby's snapshot up to date after it has acquired the lease.

A watch may lag: the last bindings of the previous leader may not be in the snapshot yet, and their room would look
free. The API server gives no way to ask whether a watch is up to date. So this process changes an annotation of its own
pod. Once its watch of pods shows that change, it has shown all changes before it. The same is true of each other kind
once its watch shows a later resourceVersion: they count the changes of all kinds. Where the process runs in no pod, or
nothing later is seen soon, the kind is listed again, which takes longer on large clusters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import structlog

from flowcore.api.kinds import POD
from thalweg_operator.api.client import MERGE_PATCH, ApiClient, pod_path
from thalweg_operator.api.json_reading import UnreadableJson
from thalweg_operator.api.watches.reflector import Reflector
from thalweg_operator.api.watches.watch_messages import OBJECTS
from thalweg_operator.constants import LEADS_SINCE
from thalweg_operator.errors import OperatorError

_log = structlog.get_logger()
#: Seconds after which a change of our pod that was not made and seen is not waited for.
_SHOWN: Final = 2.0
#: Seconds after which kinds without a later change are listed again. On large clusters nodes change more often.
_SILENT: Final = 0.2
#: Seconds that the lists of kinds other than pods may take.
LISTED_WITHIN: Final = 10.0
#: Seconds between two looks at the reflectors.
_LOOK: Final = 0.005


@dataclass(frozen=True, slots=True)
class OwnPod:
    """The pod that this process runs in."""

    namespace: str
    name: str


class CatchUp:
    """Waits until the watches show all that happened before the lease was acquired."""

    def __init__(self, api_client: ApiClient, reflectors: Mapping[str, Reflector[Any]], own_pod: OwnPod | None) -> None:
        self._api_client, self._own_pod = api_client, own_pod
        self._pods = reflectors[POD.plural]
        self._others = {kind: each for kind, each in reflectors.items() if each is not self._pods}
        #: ResourceVersion of the change of our pod; 0: there is none.
        self._mark = 0

    async def run(self, since: float) -> None:
        """Returns when the snapshot has all changes that were made before ``since``.

        Pods are waited for without an end: nodes would be overcommitted. If another kind cannot be listed, this process
        goes on with what it knows of it, as the previous leader would have done.

        Args:
            since: a time of the event loop, now or earlier: when the lease was acquired.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_SHOWN):
                if self._own_pod is not None and not self._is_current(self._pods, since):
                    self._mark = await self._change(self._own_pod)
                    await self._wait([self._pods] if self._mark else [], since)
        await self._wait([self._pods], since, relisted=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(_SILENT if self._mark else 0.0):
                await self._wait(self._others.values(), since)
        try:
            async with asyncio.timeout(LISTED_WITHIN):
                await self._wait(self._others.values(), since, relisted=True)
        except TimeoutError:
            behind = [kind for kind, each in self._others.items() if not self._is_current(each, since)]
            _log.warning("leading although these kinds could not be listed again", kinds=behind)

    async def _wait(self, reflectors: Iterable[Reflector[Any]], since: float, *, relisted: bool = False) -> None:
        """Returns when these kinds are up to date; ``relisted``: those that are not are listed again."""
        while behind := [each for each in reflectors if not self._is_current(each, since)]:
            if relisted:
                for reflector in behind:
                    reflector.relist()
            await asyncio.sleep(_LOOK)  # a reflector has no event for each version

    def _is_current(self, reflector: Reflector[Any], since: float) -> bool:
        return reflector.absent or reflector.listed_at >= since or 0 < self._mark <= reflector.version

    async def _change(self, pod: OwnPod) -> int:
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
