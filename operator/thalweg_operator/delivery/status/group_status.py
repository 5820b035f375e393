"""Writes the condition of Kubernetes' own PodGroups whose pods we bind, where kube-scheduler would write it.

A condition that says it already is not written. A reason that keeps changing is rewritten rarely. Once a group was
scheduled its condition stays True, as kube-scheduler leaves it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from flowcore.api.kinds import POD_GROUPS
from flowcore.cluster.kinds import GROUPS_OF_PODS
from flowcore.model.gang_spec import SCHEDULED_CONDITIONS, GangKey, GangSource, GroupCondition, PodGroup
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import STRATEGIC_MERGE_PATCH, ApiClient, api_path
from thalweg_operator.api.writes.events import timestamp
from thalweg_operator.api.writes.write_queue import Finished, Outcome, WriteQueue, retry_after_error
from thalweg_operator.delivery.status.group_condition import ToldReason, group_condition
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations.effects import WriteCondition
from thalweg_operator.reservations.events import Event, ObjectSet, PodPut
from thalweg_operator.shell import Shell

_KIND: Final = POD_GROUPS[GangSource.NATIVE]
#: Seconds until a change is looked at: a group left by one round is often placed by the next, and its pods come singly.
_DELAY = 0.5
#: A reason that keeps changing is rewritten this often at most.
_REWRITE_INTERVAL = 30.0
#: Seconds until a group is tried again whose condition the API server refused: a right may be given meanwhile.
_AFTER_REFUSAL = 300.0
#: Requests in flight for one namespace.
_CONCURRENCY = 4
_BACKOFF = Backoff(first=1.0, longest=30.0)
_LOOK_EVERY = 0.1


@dataclass(frozen=True, slots=True)
class _Written:
    """The last write for a group."""

    uid: str
    condition: GroupCondition
    when: float


class GroupStatus:
    """Conditions to write, by PodGroup."""

    def __init__(
        self,
        api_client: ApiClient,
        shell: Shell,
        metrics: Metrics,
        listed_at: Callable[[], str],
        per_second: float,
        *,
        backoff: Backoff = _BACKOFF,
    ) -> None:
        """For one API server.

        Args:
            listed_at: the path of all PodGroups in the API version that the cluster serves.
            per_second: conditions written per second, at most.
            backoff: pauses between tries of one write.
        """
        self._api_client, self._shell, self._listed_at, self._clock = api_client, shell, listed_at, shell.clock
        self._groups = shell.cluster.gangs.groups
        self._queue = WriteQueue("pod groups", _CONCURRENCY, self._try, metrics, backoff)
        #: Why the pods of a group wait.
        self._told: dict[GangKey, dict[str, ToldReason]] = {}
        #: When a group is to be looked at.
        self._due: dict[GangKey, float] = {}
        #: Uids of groups in the queue.
        self._queued: set[str] = set()
        self._written: dict[GangKey, _Written] = {}
        self._write_interval, self._next_write = 1.0 / per_second, self._clock()

    def put(self, effect: WriteCondition) -> None:
        """A pod learns why it waits."""
        group = self._unscheduled_group(effect.pod.gang.key) if effect.pod.gang is not None else None
        if group is not None:
            told = ToldReason(effect.pod.uid, effect.reason, effect.condition)
            self._told.setdefault(group.key, {})[effect.pod.key] = told
            self._mark(group.key)

    def observe(self, event: Event) -> None:
        """A pod of a group may have got its node, or the group itself came, changed or went."""
        if isinstance(event, PodPut):
            pod, before = event.pod, self._shell.cluster.pods.get(event.pod.key)
            had_node = before is not None and before.uid == pod.uid and bool(before.node_name)
            if pod.gang is None or not pod.node_name or had_node:
                return
            group = self._unscheduled_group(pod.gang.key)
            if group is not None:  # also while another reason is put off
                soon = self._clock() + _DELAY
                self._due[group.key] = min(soon, self._due.get(group.key, soon))
        elif isinstance(event, ObjectSet) and event.store is GROUPS_OF_PODS:
            if event.value is None:
                self._told.pop(event.key, None)
                self._due.pop(event.key, None)
                self._written.pop(event.key, None)
            elif event.key.source is GangSource.NATIVE:
                self._mark(event.key)

    async def run(self) -> None:
        """Writes until cancelled."""
        for key in self._groups:
            if key.source is GangSource.NATIVE:
                self._mark(key)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.run())
            tasks.create_task(self._enqueue_due())

    def _mark(self, key: GangKey) -> None:
        self._due.setdefault(key, self._clock() + _DELAY)

    async def _enqueue_due(self) -> None:
        """Puts groups in line whose condition is to change."""
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            now = self._clock()
            for key in [key for key, when in self._due.items() if when <= now and not self._is_queued(key)]:
                del self._due[key]
                condition = self._wanted(key)
                if condition is None:
                    continue
                group = self._groups[key]
                written = self._last_write(group)
                if written is not None and condition.status == "False" and now < written.when + _REWRITE_INTERVAL:
                    self._due[key] = written.when + _REWRITE_INTERVAL
                    continue
                self._queued.add(group.uid)
                self._queue.put(group, key.namespace)
                await asyncio.sleep(0)

    def _is_queued(self, key: GangKey) -> bool:
        group = self._groups.get(key)
        return group is not None and group.uid in self._queued

    def _wanted(self, key: GangKey) -> GroupCondition | None:
        """The condition to write for a group; None: there is none."""
        group = self._unscheduled_group(key)
        if group is None:
            self._told.pop(key, None)
            return None
        waiting = self._shell.cluster.gangs.members(key)[0]
        told = {pod: reason for pod, reason in self._told.pop(key, {}).items() if pod in waiting}
        if told:
            self._told[key] = told
        condition = group_condition(self._shell.state, group, told, self._condition_type)
        written = self._last_write(group)
        is_said = condition in group.conditions or (written is not None and condition == written.condition)
        return None if is_said else condition

    def _unscheduled_group(self, key: GangKey) -> PodGroup | None:
        """Kubernetes' own PodGroup while its condition is not True, which no later one takes back; else None."""
        group = self._groups.get(key) if key.source is GangSource.NATIVE else None
        if group is None or not group.uid:
            return None
        written = self._last_write(group)
        known = group.conditions if written is None else (*group.conditions, written.condition)
        scheduled = any(each.status == "True" and each.type == self._condition_type for each in known)
        return None if scheduled else group

    def _last_write(self, group: PodGroup) -> _Written | None:
        written = self._written.get(group.key)
        return written if written is not None and written.uid == group.uid else None

    @property
    def _condition_type(self) -> str:
        return SCHEDULED_CONDITIONS[self._listed_at().split("/")[3]]

    async def _try(self, group: PodGroup, _tries: int) -> Outcome:
        outcome: Outcome = Finished.UNSENT
        try:
            await self._turn()
            now = self._groups.get(group.key)
            if now is not None and now.uid == group.uid and (condition := self._wanted(group.key)) is not None:
                outcome = await self._write(now, condition)
        finally:
            if isinstance(outcome, Finished):
                self._queued.discard(group.uid)
        return outcome

    async def _turn(self) -> None:
        """Waits until one more condition may be written. The queue has said whose it is."""
        now = self._clock()
        self._next_write = max(now, self._next_write) + self._write_interval
        await asyncio.sleep(self._next_write - self._write_interval - now)

    async def _write(self, group: PodGroup, condition: GroupCondition) -> Outcome:
        key, before = group.key, {each.type: each.status for each in group.conditions}
        # The API server keeps the time of a condition whose status stays.
        changed = before.get(condition.type) != condition.status
        body = {
            "type": condition.type,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "observedGeneration": condition.observed_generation,
            **({"lastTransitionTime": timestamp()} if changed else {}),
        }
        version = self._listed_at().rpartition("/")[0]
        path = api_path(f"{version}/namespaces", key.namespace, _KIND.plural, key.name, "status")
        patch = msgspec.json.encode({"metadata": {"uid": group.uid}, "status": {"conditions": [body]}})
        try:
            await self._api_client.request("PATCH", path, body=patch, content_type=STRATEGIC_MERGE_PATCH)
        except (Refused, ConnectionLost) as error:
            if isinstance(error, Refused) and error.status in (404, 409):
                return Finished.ANSWERED  # it is gone, or another group has its name
            retry = retry_after_error(error)
            return retry if retry.counts_as_failure else replace(retry, min_delay=_AFTER_REFUSAL)
        self._written[key] = _Written(group.uid, condition, self._clock())
        return Finished.ANSWERED
