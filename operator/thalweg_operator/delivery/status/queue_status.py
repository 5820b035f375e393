"""Writes the status of each FlowQueue: shares, pod counts and its condition, when it is due (due.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from flowcore.api.kinds import QUEUE
from flowcore.cluster.cluster import Cluster
from flowcore.model.amount_text import exact_amount
from flowcore.model.queues import Queue, QueueShare
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import MERGE_PATCH, ApiClient, api_path
from thalweg_operator.api.writes.events import timestamp
from thalweg_operator.delivery.status.due import WrittenStatus, is_due
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.planning.reports.round_reports import RoundReports
from thalweg_operator.yielding import yielding

_PATH: Final = QUEUE.paths[0]
#: Seconds between two looks: shares change with every pod, and nobody reads them that often.
_EVERY = 2.0
#: Between tries after the API server refused a status.
_BACKOFF = Backoff(first=1.0, longest=30.0)

OnWritten: TypeAlias = Callable[[Queue, dict[str, Any] | None, dict[str, Any]], None]


class QueueStatus:
    """Writes the status of FlowQueues."""

    def __init__(self, api_client: ApiClient, cluster: Cluster, reports: RoundReports, on_written: OnWritten) -> None:
        """``on_written``: called with each status that was written and the one before."""
        self._api_client, self._cluster, self._reports, self._on_written = api_client, cluster, reports, on_written
        #: By uid.
        self._written: dict[str, WrittenStatus] = {}
        self._accepted_since: dict[str, tuple[str, str]] = {}

    async def run(self) -> None:
        """Writes until cancelled."""
        failures = 0
        while True:
            await asyncio.sleep(_BACKOFF.pause(failures) if failures else _EVERY)
            queues = list(self._cluster.queues.objects.values())
            uids = {queue.uid for queue in queues}
            self._written = {uid: each for uid, each in self._written.items() if uid in uids}
            self._accepted_since = {uid: since for uid, since in self._accepted_since.items() if uid in uids}
            counts = await self._counts() if queues else {}
            written = [await self._write(queue, counts.get(queue.name, (0, 0))) for queue in queues]
            failures = 0 if all(written) else failures + 1

    async def _counts(self) -> dict[str, tuple[int, int]]:
        """Pods with and without a node of each accepted queue, those of queues below it included."""
        cluster, counts = self._cluster, dict[str, tuple[int, int]]()
        async for (namespace, labels, _), population in yielding(list(cluster.populations.items())):
            name = cluster.queues.of_labels(labels, cluster.namespaces.get(namespace, ()))
            for above in cluster.queues.tree.path(name) if name else ():
                placed, waiting = counts.get(above, (0, 0))
                counts[above] = placed + population.placed, waiting + population.waiting
        return counts

    async def _write(self, queue: Queue, counts: tuple[int, int]) -> bool:
        """Writes one status; returns whether the API server took it, or need not."""
        status, written = self._status(queue, counts), self._written.get(queue.uid)
        now = asyncio.get_running_loop().time()
        if not is_due(written, status, now):
            return True
        before = None if written is None else written.status
        # A merge patch keeps what it does not name: a resource that is not used any more.
        sent = status | {"used": dict.fromkeys(before["used"] if before else ()) | status["used"]}
        body = msgspec.json.encode({"metadata": {"uid": queue.uid}, "status": sent})
        try:
            path = api_path(_PATH, queue.name, "status")
            await self._api_client.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        except Refused as error:
            if error.status not in (404, 409):  # gone, or another object of the same name: the watch is about to say so
                problem = f"{queue.name}: {error.reason}"
                self._api_client.outages.failed("queue status", str(error.status), problem, transient=error.starting)
                return False
            return True
        except ConnectionLost:
            return False  # the connection logs it
        self._api_client.outages.recovered("queue status")
        self._on_written(queue, before, status)
        self._written[queue.uid] = WrittenStatus(status, now)
        return True

    def _status(self, queue: Queue, counts: tuple[int, int]) -> dict[str, Any]:
        share = self._reports.queue_shares.get(queue.name, QueueShare(queue.name))
        problem = self._cluster.queues.tree.problems.get(queue.name)
        if problem is not None:
            accepted = ("False", problem.reason, f"{problem.message}. Its own pods count for no queue.")
        elif share.problem[0]:
            accepted = ("False", share.problem[0], f"{share.problem[1]}.")
        else:
            accepted = ("True", "Valid", "The queue is valid.")
        value, reason, message = accepted
        since = self._accepted_since.get(queue.uid)
        if since is None or since[0] != value:
            since = self._accepted_since[queue.uid] = (value, timestamp())
        condition = {
            "type": "Accepted",
            "status": value,
            "reason": reason,
            "message": message,
            "observedGeneration": queue.generation,
            "lastTransitionTime": since[1],
        }
        return {
            "observedGeneration": queue.generation,
            "conditions": [condition],
            "used": {name: exact_amount(name, amount) for name, amount in share.used},
            "shares": {
                "used": f"{share.used_share:.1%}",
                "fair": f"{share.fair_share:.1%}",
                "borrowed": f"{share.borrowed_share:.1%}",
            },
            "pods": {"placed": counts[0], "waiting": counts[1]},
        }
