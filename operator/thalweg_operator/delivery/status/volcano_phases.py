"""Lets Volcano's controller make the pods of its Jobs: it waits until the phase of their PodGroup is Inqueue.

Volcano's scheduler writes that phase. We write it only where a policy governs all pods that the Job will have, and
acts: elsewhere Volcano's scheduler is in charge.

Source: volcano pkg/controllers/job/job_controller_actions.go, syncJob.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from flowcore.api.kinds import POD_GROUPS
from flowcore.cluster.cluster import Cluster
from flowcore.model.gang_parents import GangController, VolcanoJob
from flowcore.model.gang_spec import GangSource, PodGroup
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import MERGE_PATCH, ApiClient, namespaced_path
from thalweg_operator.api.writes.write_queue import Finished, Outcome, WriteQueue, retry_after_error
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.metrics import Metrics
from thalweg_operator.yielding import BURST_SECONDS

_KIND: Final = POD_GROUPS[GangSource.VOLCANO]
#: The phases in which Volcano's controller makes no pods, and the one that we write.
_WAITING: Final = ("", "Pending")
_PHASE: Final = "Inqueue"
_EVERY: Final = 0.5
#: Pauses of a group between two tries.
_BACKOFF: Final = Backoff(first=1.0, longest=60.0)
#: Requests in flight for one namespace.
_CONCURRENCY: Final = 4
#: How many times as long as a look the pause after it is.
_REST = 9
#: Seconds after which a group that still waits is written again: Volcano's controller may have made it wait anew.
_SEEN_AFTER: Final = 60.0


@dataclass(frozen=True, slots=True)
class Start:
    """A Job whose pods its controller is to make, and its PodGroup."""

    job: VolcanoJob
    group: PodGroup

    def is_wanted(self, cluster: Cluster) -> bool:
        """Whether the same two objects are there now, the group waits for its phase and a policy governs the pods."""
        job = cluster.volcano_jobs.get((self.job.namespace, self.job.name))
        group = cluster.gangs.groups.get(self.group.key)
        if job is None or group is None or (job.uid, group.uid) != (self.job.uid, self.group.uid):
            return False
        return group.phase in _WAITING and _is_governed(cluster, job)


def jobs_to_start(cluster: Cluster) -> Iterator[Start | None]:
    """For each Job of Volcano: itself, where its PodGroup waits and a policy governs the pods; else None.

    The cluster may change between two of them.
    """
    waiting = {
        (group.key.namespace, group.owner): group
        for group in cluster.gangs.groups.values()
        if group.key.source is GangSource.VOLCANO and group.owner and group.phase in _WAITING
    }
    for job in list(cluster.volcano_jobs.values()) if waiting else ():
        group = waiting.get((job.namespace, job.uid))
        yield Start(job, group) if group is not None and _is_governed(cluster, job) else None


def _is_governed(cluster: Cluster, job: VolcanoJob) -> bool:
    """Whether policies that act, and start Volcano Jobs, govern all pods that a Job will have."""
    namespace_labels = cluster.namespaces.get(job.namespace)
    if namespace_labels is None or job.deleting or not job.tasks:
        return False
    for task in set(job.tasks):
        governing = cluster.policies.governing(task.scheduler_name, task.labels, namespace_labels)
        policy = governing[0] if governing else None
        if policy is None or not policy.delivery.acts or GangController.VOLCANO_JOB not in policy.gangs.controllers:
            return False
    return True


class VolcanoPhases:
    """Writes the phase of PodGroups."""

    def __init__(
        self, api_client: ApiClient, cluster: Cluster, metrics: Metrics, *, backoff: Backoff = _BACKOFF
    ) -> None:
        """For one API server.

        Args:
            backoff: pauses between tries of one write.
        """
        self._api_client, self._cluster = api_client, cluster
        self._queue = WriteQueue("phases of PodGroups", _CONCURRENCY, self._try, metrics, backoff)
        #: Uids of groups in the queue.
        self._queued: set[str] = set()
        #: Of groups that were written and are not seen so yet: when, by uid.
        self._written: dict[str, float] = {}

    async def run(self) -> None:
        """Writes until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.run())
            tasks.create_task(self._enqueue())

    async def _enqueue(self) -> None:
        """Puts groups that wait in line, again and again."""
        pause = _EVERY
        while True:
            await asyncio.sleep(pause)
            starts, took = await self._look()
            pause = max(_EVERY, _REST * took)
            uids = {start.group.uid for start in starts}
            self._written = {uid: when for uid, when in self._written.items() if uid in uids}
            now = asyncio.get_running_loop().time()
            for start in starts:
                if self._is_due(start.group.uid, now):
                    self._queued.add(start.group.uid)
                    self._queue.put(start, start.job.namespace)

    async def _look(self) -> tuple[list[Start], float]:
        """The Jobs to start, and the seconds that it took to find them: Volcano may have many that are not ours."""
        starts, took, since = [], 0.0, time.perf_counter()
        for start in jobs_to_start(self._cluster):
            if start is not None:
                starts.append(start)
            if time.perf_counter() - since >= BURST_SECONDS:
                took += time.perf_counter() - since
                await asyncio.sleep(0)
                since = time.perf_counter()
        return starts, took + time.perf_counter() - since

    def _is_due(self, uid: str, now: float) -> bool:
        return uid not in self._queued and now >= self._written.get(uid, -_SEEN_AFTER) + _SEEN_AFTER

    async def _try(self, start: Start, _tries: int) -> Outcome:
        outcome: Outcome = Finished.UNSENT
        try:
            if start.is_wanted(self._cluster):
                outcome = await self._write(start.group)
        finally:
            if isinstance(outcome, Finished):
                self._queued.discard(start.group.uid)
        return outcome

    async def _write(self, group: PodGroup) -> Outcome:
        path = namespaced_path(_KIND, group.key.namespace, group.key.name)
        body = msgspec.json.encode({"metadata": {"uid": group.uid}, "status": {"phase": _PHASE}})
        try:
            await self._api_client.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        except ConnectionLost as error:
            return retry_after_error(error)  # the connection logs it
        except Refused as error:
            if error.status in (404, 409):  # gone, or another object of the same name: the watch is about to say so
                return Finished.ANSWERED
            problem = f"{group.key.display_name}: {error.reason}"
            self._api_client.outages.failed("phase of PodGroups", str(error.status), problem)
            # Without the right all are refused: after several refusals a namespace has one try at a time.
            return replace(retry_after_error(error), counts_as_failure=True)
        self._api_client.outages.recovered("phase of PodGroups")
        self._written[group.uid] = asyncio.get_running_loop().time()
        return Finished.ANSWERED
