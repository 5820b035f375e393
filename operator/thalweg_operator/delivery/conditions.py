"""Tells waiting pods why: a PodScheduled=False condition (cluster autoscalers read it) and an Event.

The condition's reason is Unschedulable where more nodes may help, else a code of why the pod waits.

A pod that kube-scheduler holds has its condition from there already, and every change of the pod would make
kube-scheduler try it again: it gets the Event alone, and so does a pod that runs and waits for a resize. One behind our
gate keeps the condition's reason, SchedulingGated.

Pods never told before go first, as fast as the API server answers. Who tells them says after what time
(``WriteCondition.after``): autoscalers wait for the condition of a pod that no node takes.

Written again only when the reason changes, and at a limited rate: ten thousand waiting pods whose message counts nodes
would otherwise flood the API server with every node that comes or goes. Namespaces take turns.

A condition is written to the very version of the pod that the watch shows: one that was bound meanwhile keeps what its
binding says. The API server refuses it with 409, and the pod is looked at again a moment later.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import TypeAlias

import msgspec
import structlog

from flowcore.model.pods import Pod
from flowcore.rules.reasons.codes import WAITING_FOR_DEVICES
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import STRATEGIC_MERGE_PATCH, ApiClient, pod_path
from thalweg_operator.api.writes.events import EventWriter, timestamp
from thalweg_operator.api.writes.write_queue import Finished, Outcome, WriteQueue, retry_after_error
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations.effects import WriteCondition
from thalweg_operator.shell import Shell

_log = structlog.get_logger()
#: A condition as JSON.
Condition: TypeAlias = dict[str, str | int]
#: Seconds between two looks at what is due.
_LOOK_EVERY = 0.05
#: Reasons of a namespace in line at once that were not tried yet: those that fail hold up no others.
_IN_LINE = 64
#: A reason that keeps changing is rewritten this often at most. The first one, which is told at once, may be that of a
#: moment, such as a claim that its controller is about to make: the next one comes soon.
_REWRITE_INTERVAL, _SECOND_AFTER = 10.0, 1.0
#: Requests in flight at once.
_CONCURRENCY = 8
_BACKOFF = Backoff(first=1.0, longest=30.0)
#: Seconds between two looks for pods that wait no more.
_PRUNE_EVERY = 5.0


@dataclass(frozen=True, slots=True)
class _Wanted:
    uid: str
    reason: str
    condition: str
    due: float
    steered: bool


@dataclass(frozen=True, slots=True)
class _Written:
    """The last write about a pod.

    Attributes:
        next_from: when the next one may come.
        event_only: its condition does not show the reason.
    """

    uid: str
    reason: str
    next_from: float
    event_only: bool


class ConditionWriter:
    """Reasons to write, the latest per pod."""

    def __init__(
        self,
        api_client: ApiClient,
        shell: Shell,
        metrics: Metrics,
        events: EventWriter,
        per_second: float,
        *,
        backoff: Backoff = _BACKOFF,
    ) -> None:
        """Keeps few requests in flight.

        Args:
            per_second: changed reasons written per second, at most.
            backoff: pauses between tries of one write.
        """
        self._api_client, self._shell, self._metrics, self._events = api_client, shell, metrics, events
        self._per_second, self._clock = per_second, shell.clock
        self._queue = WriteQueue("reasons", _CONCURRENCY, self._try, metrics, backoff)
        self._wanted: dict[str, _Wanted] = {}
        #: When a look at them is due, in which order they came, and their keys. That look finds what changed since.
        self._by_time: list[tuple[float, int, str]] = []
        self._numbers = count()
        #: Keys of those that are due, by namespace: of pods never told before, and of others.
        self._first: dict[str, deque[str]] = {}
        self._again: OrderedDict[str, deque[str]] = OrderedDict()
        #: What is in the queue. A newer reason takes its place with the next try.
        self._sending: dict[str, _Wanted] = {}
        self._written: dict[str, _Written] = {}
        self._pruned_at = self._clock()

    def put(self, effect: WriteCondition) -> None:
        """The pod is to learn this reason, unless it is placed or gone by then."""
        pod, reason, steered = effect.pod, effect.reason, effect.steered
        wanted, sending = self._wanted.get(pod.key), self._sending.get(pod.key)
        if wanted is None and sending is not None and (sending.uid, sending.reason) == (pod.uid, reason):
            return
        written = self._written.get(pod.key)
        if written is not None and written.uid != pod.uid:
            written = None
        due = self._clock() + effect.after
        if written is not None:
            due = max(due, written.next_from)
        if wanted is not None and wanted.uid == pod.uid:
            if due < wanted.due:
                heappush(self._by_time, (due, next(self._numbers), pod.key))
            self._wanted[pod.key] = _Wanted(pod.uid, reason, effect.condition, min(due, wanted.due), steered)
        elif not self._is_told(pod, effect) and (
            written is None or written.reason != reason or not (steered or written.event_only)
        ):
            self._wanted[pod.key] = _Wanted(pod.uid, reason, effect.condition, due, steered)
            heappush(self._by_time, (due, next(self._numbers), pod.key))

    async def run(self) -> None:
        """Writes until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.run())
            tasks.create_task(self._enqueue_due())

    async def _enqueue_due(self) -> None:
        """Puts due conditions in line: those of pods never told before, and others at a limited rate."""
        rewrites = 0.0
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            rewrites = min(rewrites, 1.0) + self._per_second * _LOOK_EVERY
            for key, wanted in self._take_due(int(rewrites)):
                pod = self._shell.pod_to_tell(key, wanted.uid)
                if pod is None or self._is_told(pod, wanted):
                    continue
                rewrites -= key in self._written
                self._sending[key] = wanted
                self._queue.put(key, pod.namespace)

    def _is_told(self, pod: Pod, wanted: WriteCondition | _Wanted) -> bool:
        """Whether the pod's condition says it, unless the watch may not show yet what else was written since."""
        latest = self._sending.get(pod.key) or self._written.get(pod.key)
        is_overwritten = latest is not None and latest.uid == pod.uid and latest.reason != wanted.reason
        return not is_overwritten and _says(pod, wanted)

    def _take_due(self, most_again: int) -> list[tuple[str, _Wanted]]:
        """What to tell now, by key: pods never told before, as many as may stand in line, and some of the others.

        It costs as much as there is to tell, however many wait to be told. It is wanted no more: a pod that a newer
        reason brought forward is due twice.

        Args:
            most_again: of the others at most.
        """
        now = self._clock()
        self._prune(now)
        while self._by_time and self._by_time[0][0] <= now:
            key = heappop(self._by_time)[2]
            due = self._again if key in self._written else self._first
            due.setdefault(key.partition("/")[0], deque()).append(key)
        in_line = Counter(key.partition("/")[0] for key in self._sending if key not in self._written)
        taken = list[tuple[str, _Wanted]]()
        for namespace in list(self._first):
            taken += self._take_of(self._first, namespace, _IN_LINE - in_line[namespace], now)
        most = len(taken) + most_again
        while self._again and len(taken) < most:
            namespace = next(iter(self._again))
            self._again.move_to_end(namespace)  # namespaces take turns
            taken += self._take_of(self._again, namespace, 1, now)
        return taken

    def _take_of(self, due: dict[str, deque[str]], namespace: str, most: int, now: float) -> list[tuple[str, _Wanted]]:
        keys, taken = due[namespace], list[tuple[str, _Wanted]]()
        while keys and len(taken) < most:
            key = keys.popleft()
            wanted = self._wanted.get(key)
            if wanted is None or wanted.due > now:
                continue
            if key in self._sending:
                # It is looked at again once the one before is answered.
                heappush(self._by_time, (now, next(self._numbers), key))
            else:
                taken.append((key, self._wanted.pop(key)))
        if not keys:
            del due[namespace]
        return taken

    def _prune(self, now: float) -> None:
        if now - self._pruned_at < _PRUNE_EVERY:
            return
        self._pruned_at, waiting = now, self._shell.cluster.waiting
        self._written = {key: written for key, written in self._written.items() if key in waiting}
        self._wanted = {key: wanted for key, wanted in self._wanted.items() if key in waiting}

    async def _try(self, key: str, _tries: int) -> Outcome:
        wanted = self._sending[key] = self._wanted.pop(key, self._sending[key])
        outcome: Outcome = Finished.UNSENT
        try:
            pod = self._shell.pod_to_tell(key, wanted.uid)
            if pod is not None:
                outcome = await self._write(pod, wanted)
        finally:
            if isinstance(outcome, Finished):
                del self._sending[key]
        return outcome

    async def _write(self, pod: Pod, wanted: _Wanted) -> Outcome:
        self._mark_written(pod, wanted, event_only=bool(pod.grows))
        if pod.gated or not (wanted.steered or pod.grows):
            condition: Condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated" if pod.gated else wanted.condition,
                "message": wanted.reason,
            }
            if pod.generation:
                condition["observedGeneration"] = pod.generation
            if not pod.unschedulable_since:
                # Also over what the API server wrote for a gate: the time there says since when it could be planned.
                condition["lastTransitionTime"] = timestamp()
            try:
                await self._patch(pod, condition)
            except (Refused, ConnectionLost) as error:
                status = error.status if isinstance(error, Refused) else 0
                if status == 404:
                    return Finished.ANSWERED  # it is gone
                outcome = retry_after_error(error)
                if status == 409:
                    return outcome  # it has changed, or another pod has its name: the watch will show it
                _log.warning("reason not written", pod=pod.key, problem=str(error))
                if outcome.counts_as_failure:
                    return outcome
                # The pod itself may not be changed. Its Event says it, once.
                self._mark_written(pod, wanted, event_only=True)
        if wanted.condition == WAITING_FOR_DEVICES:  # kube-scheduler's Event of that time
            self._events.write(pod, "BindingConditionsPending", wanted.reason, action="Scheduling")
        else:
            self._events.write(pod, "FailedScheduling", wanted.reason, action="Scheduling", warning=True)
        self._metrics.told.inc()
        return Finished.ANSWERED

    def _mark_written(self, pod: Pod, wanted: _Wanted, *, event_only: bool) -> None:
        before = self._written.get(pod.key)
        is_first = before is None or before.uid != pod.uid
        next_from = self._clock() + (_SECOND_AFTER if is_first else _REWRITE_INTERVAL)
        self._written[pod.key] = _Written(pod.uid, wanted.reason, next_from, event_only)

    async def _patch(self, pod: Pod, condition: Condition) -> None:
        version = {"resourceVersion": pod.resource_version} if pod.resource_version else {}
        body = msgspec.json.encode({"metadata": {"uid": pod.uid} | version, "status": {"conditions": [condition]}})
        path = pod_path(pod.namespace, pod.name, "status")
        await self._api_client.request("PATCH", path, body=body, content_type=STRATEGIC_MERGE_PATCH)


def _says(pod: Pod, wanted: WriteCondition | _Wanted) -> bool:
    """Whether the pod's condition says it already. The reason of a pod that kube-scheduler holds is not ours."""
    if pod.unschedulable_message != wanted.reason:
        return False
    if wanted.steered:
        return True
    return not pod.unschedulable_is_old and (pod.gated or pod.unschedulable_reason == wanted.condition)
