"""Keeps what classes of pods use in a ConfigMap beside the Lease, so that the next leader goes on with it.

It is read once, before this process writes it: what an earlier leader saved is taken over by age. A later release may
write another format. That is left alone for as long as it is there: the release that comes back finds it.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import structlog

from flowcore.cluster.cluster import Cluster
from flowcore.cluster.usage_samples.saved_classes import NewerUsage, from_text, to_text
from flowcore.model.errors import ModelError
from flowcore.model.usage import SavedClass, UsageClass
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import MERGE_PATCH, ApiClient, api_path
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.api.leadership.leader_election import LeaseName
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.metrics import Metrics
from thalweg_operator.usage.poller import UsagePoller, asks_for_usage
from thalweg_operator.yielding import yielding

_log = structlog.get_logger()
#: Seconds between two writes.
_INTERVAL = 300.0
#: Seconds between two looks whether a policy asks for it, before it is read.
_TICK = 1.0
#: Seconds that a read may hold up the first round, and a write the end of the process.
_PATIENCE = 2.0
#: Bytes. An object of the API server has 1 MiB at most.
_LIMIT = 900_000
#: Most classes of pods that are looked at, those of all namespaces in turn. More do not fit.
_MOST_CLASSES = 5_000
_KEY: Final = "usage.json"
_TOPIC: Final = "saved usage"
_BACKOFF = Backoff(first=5.0, longest=_INTERVAL)


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


_reader = JsonReader(_ConfigMap)


class SavedUsage:
    """Reads and writes the ConfigMap, while a policy in force plans with measured usage."""

    def __init__(
        self,
        api_client: ApiClient,
        lease: LeaseName,
        cluster: Cluster,
        usage: UsagePoller,
        metrics: Metrics,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """``wall_clock``: seconds since the epoch."""
        self._api_client, self._cluster, self._usage = api_client, cluster, usage
        self._metrics, self._wall_clock = metrics, wall_clock
        self._name = f"{lease.namespace}/{lease.name}-usage"
        self._path = api_path("/api/v1/namespaces", lease.namespace, "configmaps", f"{lease.name}-usage")
        #: Whether it may be written: it was read, and no later release has written it.
        self._known = self._newer = False
        self._absent = False
        self._written = b""

    async def run(self) -> None:
        """Writes what is new until cancelled."""
        failures = 0
        while True:
            await asyncio.sleep(_INTERVAL if self._known else _BACKOFF.pause(failures) if failures else _TICK)
            if asks_for_usage(self._cluster):
                await self.turn()
                failures += 1

    async def turn(self) -> None:
        """Writes what is new; reads what is there before, or while it is a later release's."""
        if self._known and not self._newer:
            await self.save()
        else:
            await self.restore()

    async def restore(self) -> None:
        """Takes over what an earlier leader saved; a failure is told, and ``run`` tries again."""
        if not asks_for_usage(self._cluster):
            return
        try:
            data = _reader.read(await self._api_client.request("GET", self._path, seconds=_PATIENCE)).data or {}
        except Refused as error:
            if error.status == 404:
                self._tell_absent()
            else:
                self._count("failed")
                self._api_client.outages.failed(_TOPIC, str(error.status), error.reason, transient=error.starting)
            return
        except ConnectionLost:
            self._count("failed")
            return
        except UnreadableJson as error:
            data = {_KEY: str(error)}  # no more than text that cannot be read
        self._api_client.outages.recovered(_TOPIC)
        was_newer, self._known, self._newer = self._newer, True, False
        if _KEY in data:
            self._take_over(data[_KEY], was_newer=was_newer)

    def _tell_absent(self) -> None:
        """Says once that nothing outlives this process: the ConfigMap was perhaps left out on purpose."""
        if not self._absent:
            self._absent = True
            self._count("absent")
            _log.info("usage not saved", problem=f"there is no ConfigMap {self._name}: see rights/usage.yaml")

    def _take_over(self, text: str, *, was_newer: bool) -> None:
        try:
            classes = from_text(text, self._wall_clock())
        except NewerUsage as error:
            self._newer = True
            if not was_newer:
                self._count("newer")
                _log.warning("saved usage not read, usage not saved", config_map=self._name, problem=str(error))
        except ModelError as error:
            self._count("unreadable")
            _log.warning("saved usage not read", config_map=self._name, problem=str(error))
        else:
            self._usage.store.restore(classes)
            self._written = text.encode()
            self._count("read")
            _log.info("saved usage read", config_map=self._name, classes=len(classes))

    async def save(self) -> None:
        """Writes what is known, if it is new."""
        if not self._known or self._newer or not asks_for_usage(self._cluster):
            return
        text = await self._to_text()
        if text == self._written:
            return
        body = msgspec.json.encode({"data": {_KEY: text.decode()}})
        try:
            await self._api_client.request("PATCH", self._path, body=body, content_type=MERGE_PATCH, seconds=_PATIENCE)
        except Refused as error:
            self._count("failed")
            self._api_client.outages.failed(_TOPIC, str(error.status), error.reason, transient=error.starting)
        except ConnectionLost:
            self._count("failed")
        else:
            self._written = text
            self._count("written")
            self._api_client.outages.recovered(_TOPIC)

    async def _to_text(self) -> bytes:
        store, classes = self._usage.store, list[SavedClass]()
        async for usage_class in yielding(_newest_of_each_namespace(store.classes)):
            saved = store.saved_class(usage_class)
            if saved.amounts:
                classes.append(saved)
        return await asyncio.to_thread(to_text, classes, _LIMIT)

    def _count(self, outcome: str) -> None:
        self._metrics.saved_usage.labels(outcome).inc()


def _newest_of_each_namespace(classes: Sequence[UsageClass]) -> list[UsageClass]:
    """At most ``_MOST_CLASSES``, in the same order; of each namespace the last ones."""
    by_namespace: dict[str, list[UsageClass]] = {}
    for usage_class in reversed(classes):
        by_namespace.setdefault(usage_class.namespace, []).append(usage_class)
    turns = itertools.chain.from_iterable(itertools.zip_longest(*by_namespace.values()))
    kept = set(itertools.islice((usage_class for usage_class in turns if usage_class is not None), _MOST_CLASSES))
    return [usage_class for usage_class in classes if usage_class in kept]
