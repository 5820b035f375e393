"""Lets Volcano's controller make the pods of its Jobs: it waits until the phase of their PodGroup is Inqueue.

Volcano's scheduler writes that phase. We write it only where a policy governs all pods that the Job will have, and
acts: elsewhere Volcano's scheduler is in charge.

Source: volcano pkg/controllers/job/job_controller_actions.go, syncJob.
"""

from __future__ import annotations

import asyncio
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


def groups_to_start(cluster: Cluster) -> Iterator[PodGroup]:
    """PodGroups of Volcano Jobs that wait for their phase, and whose pods a policy governs."""
    waiting = {
        group.owner: group
        for group in cluster.gangs.groups.values()
        if group.key.source is GangSource.VOLCANO and group.owner and group.phase in _WAITING
    }
    for job in cluster.volcano_jobs.values() if waiting else ():
        group = waiting.get(job.uid)
        if group is not None and group.key.namespace == job.namespace and _is_governed(cluster, job):
            yield group


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
        #: Uids of groups that were written and are not seen so yet.
        self._written: set[str] = set()

    async def run(self) -> None:
        """Writes until cancelled."""
        failures = 0
        while True:
            await asyncio.sleep(_BACKOFF.pause(failures) if failures else _EVERY)
            groups = list(groups_to_start(self._cluster))
            uids = {group.uid for group in groups}
            self._written &= uids
            self._refused = {uid: pause for uid, pause in self._refused.items() if uid in uids}
            now = asyncio.get_running_loop().time()
            due = [
                group
                for group in groups
                if group.uid not in self._written and self._refused.get(group.uid, (0, now))[1] <= now
            ]
            try:
                for group in due[:_MOST]:
                    await self._write(group)
                failures = 0
            except ConnectionLost:
                failures += 1  # the connection logs it

    async def _write(self, group: PodGroup) -> None:
        """Writes the phase into the object; where it has the status as a subresource, there."""
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
            tries = self._refused.get(group.uid, (0, 0.0))[0] + 1
            self._refused[group.uid] = tries, asyncio.get_running_loop().time() + _BACKOFF.pause(tries)
            return
        self._api_client.outages.recovered("phase of PodGroups")
        self._refused.pop(group.uid, None)
        self._written.add(group.uid)


class _Status(msgspec.Struct):
    phase: str = ""


class _Answer(msgspec.Struct):
    status: _Status | None = None
