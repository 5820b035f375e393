"""Lets Volcano's controller make the pods of its Jobs: it waits until the phase of their PodGroup is Inqueue.

Volcano's scheduler writes that phase. We write it only where a policy governs all pods that the Job will have, and
acts: elsewhere Volcano's scheduler is in charge.

Source: volcano pkg/controllers/job/job_controller_actions.go, syncJob.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Final

import msgspec

from flowcore.api.kinds import POD_GROUPS
from flowcore.cluster.cluster import Cluster
from flowcore.model.gang_parents import GangController, VolcanoJob
from flowcore.model.gang_spec import GangSource, PodGroup
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import MERGE_PATCH, ApiClient, namespaced_path
from thalweg_operator.errors import ConnectionLost, Refused

_KIND: Final = POD_GROUPS[GangSource.VOLCANO]
#: The phases in which Volcano's controller makes no pods, and the one that we write.
_WAITING: Final = ("", "Pending")
_PHASE: Final = "Inqueue"
_EVERY: Final = 0.5
#: Pauses of a group after a refusal, and after the API server was not reached.
_BACKOFF: Final = Backoff(first=1.0, longest=60.0)
#: Writes in one look, so that a flood of Jobs does not keep the others waiting.
_MOST: Final = 100
#: Jobs that are looked at between two turns of the event loop, and how many times as long as a look the pause is.
_BURST, _REST = 100, 9
#: Seconds after which a group that still waits is written again: Volcano's controller may have made it wait anew.
_SEEN_AFTER: Final = 60.0


def groups_to_start(cluster: Cluster) -> Iterator[PodGroup | None]:
    """For each Job of Volcano its PodGroup, where it waits for its phase and a policy governs the pods; else None.

    The cluster may change between two of them.
    """
    waiting = {
        (group.key.namespace, group.owner): group
        for group in cluster.gangs.groups.values()
        if group.key.source is GangSource.VOLCANO and group.owner and group.phase in _WAITING
    }
    for job in list(cluster.volcano_jobs.values()) if waiting else ():
        group = waiting.get((job.namespace, job.uid))
        yield group if group is not None and _is_governed(cluster, job) else None


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

    def __init__(self, api_client: ApiClient, cluster: Cluster) -> None:
        self._api_client, self._cluster = api_client, cluster
        #: Of groups that were refused: how often, and until when they pause, by uid.
        self._refused: dict[str, tuple[int, float]] = {}
        #: Of groups that were written and are not seen so yet: when, by uid.
        self._written: dict[str, float] = {}

    async def run(self) -> None:
        """Writes until cancelled."""
        failures, pause = 0, _EVERY
        while True:
            await asyncio.sleep(_BACKOFF.pause(failures) if failures else pause)
            groups, took = await self._look()
            pause = max(_EVERY, _REST * took)
            uids = {group.uid for group in groups}
            self._written = {uid: when for uid, when in self._written.items() if uid in uids}
            self._refused = {uid: known for uid, known in self._refused.items() if uid in uids}
            try:
                for group in [group for group in groups if self._is_due(group.uid)][:_MOST]:
                    await self._write(group)
                failures = 0
            except ConnectionLost:
                failures += 1  # the connection logs it
            except Refused:
                failures += 1  # no right to any group: the others need not be tried

    async def _look(self) -> tuple[list[PodGroup], float]:
        """The groups to start, and the seconds that it took to find them: Volcano may have many that are not ours."""
        groups, took, since = [], 0.0, time.perf_counter()
        for index, group in enumerate(groups_to_start(self._cluster)):
            if group is not None:
                groups.append(group)
            if index % _BURST == _BURST - 1:
                took += time.perf_counter() - since
                await asyncio.sleep(0)
                since = time.perf_counter()
        return groups, took + time.perf_counter() - since

    def _is_due(self, uid: str) -> bool:
        now = asyncio.get_running_loop().time()
        return now >= max(self._refused.get(uid, (0, 0.0))[1], self._written.get(uid, -_SEEN_AFTER) + _SEEN_AFTER)

    async def _write(self, group: PodGroup) -> None:
        """Writes the phase into the object; where it has the status as a subresource, there.

        Raises:
            Refused: the account has no right to PodGroups.
        """
        path = namespaced_path(_KIND, group.key.namespace, group.key.name)
        body = msgspec.json.encode({"metadata": {"uid": group.uid}, "status": {"phase": _PHASE}})
        try:
            answer = await self._api_client.request("PATCH", path, body=body, content_type=MERGE_PATCH)
            status = msgspec.json.decode(answer, type=_Answer).status
            if status is None or status.phase != _PHASE:
                await self._api_client.request("PATCH", f"{path}/status", body=body, content_type=MERGE_PATCH)
        except Refused as error:
            if error.status not in (404, 409):  # gone, or another object of the same name: the watch is about to say so
                problem = f"{group.key.display_name}: {error.reason}"
                self._api_client.outages.failed("phase of PodGroups", str(error.status), problem)
            if error.status == 403:
                raise
            tries = self._refused.get(group.uid, (0, 0.0))[0] + 1
            self._refused[group.uid] = tries, asyncio.get_running_loop().time() + _BACKOFF.pause(tries)
            return
        self._api_client.outages.recovered("phase of PodGroups")
        self._refused.pop(group.uid, None)
        self._written[group.uid] = asyncio.get_running_loop().time()


class _Status(msgspec.Struct):
    phase: str = ""


class _Answer(msgspec.Struct):
    status: _Status | None = None
