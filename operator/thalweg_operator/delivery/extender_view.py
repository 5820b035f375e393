"""What kube-scheduler's extender sees of the plan."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from flowcore.model.advice import Advice, ExtenderPod
from flowcore.model.pods import Pod
from thalweg_operator.reservations.events import (
    Event,
    PlanMade,
    PodPut,
    PodsUnplaced,
    SchedulerAnswered,
    SchedulerAsks,
)
from thalweg_operator.reservations.steering.advise import advise, awaits_help, awaits_plan, is_shown, watched_pod
from thalweg_operator.shell import Shell

#: Seconds that an answer waits for the pod's round at most. kube-scheduler schedules no other pod meanwhile.
LONGEST_WAIT = 0.1
#: After a wait in vain no answer waits until a round has ended. Each such wait doubles that number of rounds, up to
#: this one.
MOST_UNAWAITED = 16
#: Seconds without waits for the watch after a wait that it did not end. Anyone can ask about pods that do not exist.
WATCH_RESTS = 1.0
#: Answers that wait at once: they never take all requests that may be in flight. kube-scheduler asks one by one.
MOST_WAITING = 8


class _Waits:
    """Whether answers wait for rounds: after each wait in vain not before some rounds have ended."""

    def __init__(self) -> None:
        #: Rounds that no answer waits for, and how many there will be after the next wait in vain.
        self._unawaited, self._next_unawaited = 0, 1

    @property
    def rest(self) -> bool:
        """Whether no answer waits now."""
        return self._unawaited > 0

    def round_ended(self) -> None:
        """A round ended."""
        self._unawaited = max(0, self._unawaited - 1)

    def ended(self, *, in_vain: bool) -> None:
        """A wait ended."""
        if not in_vain:
            self._next_unawaited = 1
        elif not self._unawaited:  # else another answer that waited at the same time has counted
            self._unawaited = self._next_unawaited
            self._next_unawaited = min(2 * self._next_unawaited, MOST_UNAWAITED)


class ExtenderView:
    """Answers the extender's questions about pods from the ledger.

    Args:
        problem: why nothing can be said now: something is not known yet, or this replica does not lead; "": nothing.
    """

    def __init__(self, shell: Shell, problem: Callable[[], str]) -> None:
        self._shell, self.unavailable = shell, problem
        #: Answers that wait, each with the key of its pod.
        self._waiting: dict[asyncio.Future[None], str] = {}
        #: Of new pods: in vain is a wait without a plan. Of pods that were planned in vain before: without a place.
        self._first_waits, self._more_waits = _Waits(), _Waits()
        #: The loop's time until which no answer waits for the watch to show its pod.
        self._watch_rests_until = float("-inf")
        shell.observers.append(self._observe)

    def planned_at_once(self, extender_pod: ExtenderPod, nodes: Sequence[str]) -> bool | asyncio.Future[None]:
        """Gives a new pod a place where it waits for nothing; whether no answer about it has to wait.

        A future where our watch has not shown the pod: it ends when it does, or when it is cancelled.
        """
        shell = self._shell
        if shell.state.nominations.begun_until > shell.clock():
            return False
        if awaits_plan(shell.cluster, shell.ledger, extender_pod):
            if watched_pod(shell.cluster, extender_pod) is None:
                return self._watched(extender_pod.key)
            shell.apply(SchedulerAsks(extender_pod, nodes))
        elif awaits_help(shell.state, extender_pod):
            return self._more_waits.rest
        return not awaits_plan(shell.cluster, shell.ledger, extender_pod)

    def _watched(self, key: str) -> bool | asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        if len(self._waiting) >= MOST_WAITING or loop.time() < self._watch_rests_until:
            return False
        shown: asyncio.Future[None] = loop.create_future()
        self._waiting[shown] = key
        shown.add_done_callback(lambda _: self._waiting.pop(shown, None))
        return shown

    async def until_planned(self, extender_pod: ExtenderPod, nodes: Sequence[str]) -> None:
        """Returns once a pod has a place, or after its first round, or the first after something helped it, or a time.

        A pod that comes by itself has a place at once, unless the plan under way loses by that; then it is looked at
        once more at the end. A pod that is held costs kube-scheduler a second attempt, and the API server three writes.
        While gangs that are bound in part wait for the first plan of this process, no answer may give their room to
        anybody.
        """
        await self._until_gangs_are_planned(extender_pod)
        latest = asyncio.get_running_loop().time() + LONGEST_WAIT
        if not self.unavailable():
            await self._until_first_round(extender_pod, nodes, latest)
        if not self.unavailable() and awaits_plan(self._shell.cluster, self._shell.ledger, extender_pod):
            self._shell.apply(SchedulerAsks(extender_pod, nodes))
        elif not self.unavailable() and awaits_help(self._shell.state, extender_pod):
            await self._until_helped(extender_pod, nodes, latest)

    async def _until_first_round(self, extender_pod: ExtenderPod, nodes: Sequence[str], latest: float) -> None:
        cluster, ledger, loop = self._shell.cluster, self._shell.ledger, asyncio.get_running_loop()
        told = helped = False
        while awaits_plan(cluster, ledger, extender_pod):
            seen = is_shown(cluster, extender_pod)
            if seen and not told:
                self._shell.apply(SchedulerAsks(extender_pod, nodes))
                told = True
                continue
            if self._first_waits.rest or len(self._waiting) >= MOST_WAITING:
                return
            if not seen and loop.time() < self._watch_rests_until:
                return
            changed: asyncio.Future[None] = loop.create_future()
            self._waiting[changed] = extender_pod.key
            try:
                async with asyncio.timeout_at(latest):
                    await changed
            except TimeoutError:
                self._waited_in_vain(for_watch=not seen)
                return
            finally:
                del self._waiting[changed]
            helped = True
        if helped:
            self._first_waits.ended(in_vain=False)

    async def _until_helped(self, extender_pod: ExtenderPod, nodes: Sequence[str], latest: float) -> None:
        """Returns once a pod that was planned in vain has a place, or when the next plan has none for it either."""
        if self._more_waits.rest or len(self._waiting) >= MOST_WAITING:
            return
        loop, key = asyncio.get_running_loop(), extender_pod.key
        self._shell.apply(SchedulerAsks(extender_pod, nodes))
        with suppress(TimeoutError):
            async with asyncio.timeout_at(latest):
                while awaits_help(self._shell.state, extender_pod):
                    changed: asyncio.Future[None] = loop.create_future()
                    self._waiting[changed] = key
                    try:
                        await changed
                    finally:
                        del self._waiting[changed]
        pod, ledger = watched_pod(self._shell.cluster, extender_pod), self._shell.ledger
        record = None if pod is None else ledger.known_record(pod)
        self._more_waits.ended(in_vain=key not in ledger.reservations and record is not None and not record.may_choose)

    async def _until_gangs_are_planned(self, extender_pod: ExtenderPod) -> None:
        records, clock = self._shell.state.nominations, self._shell.clock
        while (left := records.begun_until - clock()) > 0 and len(self._waiting) < MOST_WAITING:
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[changed] = extender_pod.key
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await changed
            finally:
                del self._waiting[changed]

    def _waited_in_vain(self, *, for_watch: bool) -> None:
        if for_watch:  # that says nothing of the rounds
            self._watch_rests_until = asyncio.get_running_loop().time() + WATCH_RESTS
        else:
            self._first_waits.ended(in_vain=True)

    def _observe(self, event: Event) -> None:
        """An event is about to be applied; who waits looks at what is there afterwards."""
        if isinstance(event, PlanMade) and event.last:
            self._first_waits.round_ended()
            self._more_waits.round_ended()
        elif not isinstance(event, PodPut | PodsUnplaced):
            return
        for changed, key in self._waiting.items():
            if not changed.done() and (not isinstance(event, PodPut) or self._concerns(event.pod, key)):
                changed.set_result(None)

    def _concerns(self, shown: Pod, key: str) -> bool:
        """Whether the answer about a pod waits for this one: itself, or another one of its gang."""
        asked = self._shell.cluster.waiting.get(key)
        if asked is None or asked.gang is None or shown.gang is None:
            return shown.key == key
        return shown.gang.key == asked.gang.key

    def advise(self, extender_pod: ExtenderPod, nodes: Sequence[str]) -> Advice:
        """What to answer about a pod. Changes nothing."""
        return advise(self._shell.state, extender_pod, nodes)

    def answered(self, extender_pod: ExtenderPod, advice: Advice, outcome: str, passed: Sequence[str]) -> None:
        """kube-scheduler was answered."""
        self._shell.apply(SchedulerAnswered(extender_pod, outcome, passed, advice))
