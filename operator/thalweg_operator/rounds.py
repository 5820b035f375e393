"""The round loop: from the state to a request, from the plan to reservations and bindings.

A plan is checked against the newest state before it leaves: what no longer holds is dropped and planned again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from flowcore.model.holds import Hold, Holds
from flowcore.model.neighbours import Kind
from flowcore.model.pods import Pod, PodClass, without
from flowcore.model.policies import Delivery, Policy, Steering
from flowcore.model.quantities import MAX_AMOUNT
from flowcore.model.replacing import forbidden
from flowcore.model.resources import Amounts
from flowcore.model.snapshot import Replaced
from thalweg_operator.backoff import Backoff
from thalweg_operator.batcher import Batcher
from thalweg_operator.binder import Binder
from thalweg_operator.deadline import RoundDeadline
from thalweg_operator.dispatch import Dispatch, in_bursts
from thalweg_operator.errors import WorkerLost
from thalweg_operator.health import Liveness
from thalweg_operator.lasting import LastingRoom
from thalweg_operator.metrics import Metrics
from thalweg_operator.policies import PolicyStore
from thalweg_operator.quarantine import Quarantine
from thalweg_operator.resting import RestingPods
from thalweg_operator.state import Changes, ClusterState
from thalweg_operator.steering import PodSteering
from thalweg_operator.waiting import WaitingPods
from thalweg_operator.wire import RoundReply, RoundRequest, Use, Waiting, told
from thalweg_operator.worker_client import WorkerClient

_log = structlog.get_logger()
#: Before a worker that was lost is replaced.
_BACKOFF = Backoff(first=0.05, longest=10.0)
#: What no round of so many, and none of as many before, asked about is forgotten.
GENERATION = 64


@dataclass(frozen=True, slots=True)
class RoundReport:
    """What the last round did for one policy."""

    number: int
    finished: float
    placed: int
    waiting: int
    cost: int
    gap: float
    certified: bool


@dataclass(frozen=True, slots=True)
class _Moment:
    """What a request is about: the state's generation, what changed up to then, and the policies in order."""

    generation: int
    changes: Changes
    policies: Sequence[Policy]
    #: Of the policy objects, by name.
    uids: Mapping[str, str]


@dataclass(slots=True)
class _Question:
    """A request and the pods it speaks of, by place.

    Attributes:
        blocked: pods that nobody may place.
        resting: pods that no round is planned with for now, and why.
        more: whether others wait for the next round.
    """

    request: RoundRequest
    pods: list[Pod]
    blocked: list[tuple[Pod, Policy]] = field(default_factory=list)
    resting: list[tuple[Pod, Policy, str]] = field(default_factory=list)
    more: bool = False
    #: Of the policy objects behind the request's policies, by name.
    uids: Mapping[str, str] = field(default_factory=dict)


class RoundLoop:
    """Runs rounds whenever the batcher says so.

    Attributes:
        liveness: whether rounds are made.
        reports: the last round of each policy object that had pods waiting, by its uid.
        contradictions: policy objects, by uid, that rule some of their own pods out: their version then, and how.
        on_planned: called with each round's request, the pods of its ``waiting`` and its reply, once it is carried out.
    """

    def __init__(
        self,
        state: ClusterState,
        policies: PolicyStore,
        worker: WorkerClient,
        binder: Binder,
        steering: PodSteering,
        waiting: WaitingPods,
        metrics: Metrics,
        batcher: Batcher,
        resync: float,
        budget: float,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        round_timeout: float = 60.0,
        liveness: Liveness | None = None,
    ) -> None:
        """Wires the loop.

        Args:
            clock: what pauses are counted by; nobody sets it.
            wall: seconds since the epoch: how long pods wait, and times that are shown.
            round_timeout: seconds that any round may take.
        """
        self._state, self._policies, self._worker = state, policies, worker
        self._binder, self._steering, self._waiting, self._metrics = binder, steering, waiting, metrics
        self._batcher, self._resync, self._budget, self._clock = batcher, resync, budget, clock
        self.on_planned: Callable[[RoundRequest, Sequence[Pod], RoundReply], None] = lambda *_: None
        self._wall, self._deadline = wall, RoundDeadline(round_timeout, budget)
        self._quarantine = Quarantine(state.gangs.first_of)
        self._resting = RestingPods(clock, state.node_changed_since)
        self._dispatch = Dispatch(state, policies, binder, steering, metrics, self._resting.contended)
        self._lasting = LastingRoom(state, policies, clock)
        self._holds: tuple[Hold, ...] = ()
        self._number = 0
        self._told = False
        self._asked = 0.0
        #: Uid of each pod that was planned with, and since when it waits.
        self._since: dict[str, tuple[str, float]] = {}
        self.liveness = liveness or Liveness(round_timeout)
        self.reports: dict[str, RoundReport] = {}
        self.contradictions: dict[str, tuple[Policy, list[str]]] = {}

    async def run(self) -> None:
        """Runs until cancelled; the worker is started and replaced as needed."""
        failures = 0
        try:
            while True:
                await self._batcher.wait(self._next_due())
                self.liveness.began()
                try:
                    await self._round()
                    failures = 0
                    self.liveness.ended(success=True)
                except WorkerLost as error:
                    self.liveness.ended(success=False)
                    # With pods to plan the same question is not asked again (quarantine.py); without, it must be.
                    failures = 0 if self._told else failures + 1
                    self._told = False
                    self._metrics.worker_restarts.inc()
                    self._metrics.rounds_failed.labels(error.cause).inc()
                    _log.error("worker replaced", problem=str(error), failures=failures)
                    await asyncio.sleep(_BACKOFF.pause(failures + 1))
                    self._batcher.touch()
        finally:
            await self._worker.stop()

    def refused(self, pod: Pod, reason: str, *, steered: bool = False) -> None:
        """A pod could not be bound where it was planned: it is told so, and rests before it is planned again."""
        self._resting.refused(pod)
        self._waiting.tell(pod, reason, steered=steered)

    def rejected(self, pod: Pod, node: str) -> None:
        """kube-scheduler's own filters refuse a node for a pod: the pair rests, longer each time."""
        self._resting.rejected(pod, node, self._state.generation)
        self._batcher.touch()

    def _waits_since(self, pod: Pod) -> float:
        """When it could first be planned, by the wall clock: the first round that could, or by what was written on it.

        After a restart the latter is all that is known. Who was never told it waits counts as new.
        """
        known = self._since.get(pod.key)
        if known is None or known[0] != pod.uid:
            known = self._since[pod.key] = pod.uid, pod.tried or self._wall()
        return known[1]

    def _next_due(self) -> float:
        now = self._clock()
        # Pauses that end after the last round began, not after now: one that ended while it ran was skipped by it.
        ends = list(self._resting.ends(self._asked))
        due = self._quarantine.next_due(self._asked)
        ends += [] if due is None else [due]
        return min([self._resync, *(max(0.0, end - now) for end in ends)])

    async def _round(self) -> None:
        if not (self._told and self._worker.alive):
            await self._begin_anew()
        question = await self._question()
        request = question.request
        if question.more:
            self._batcher.touch()
        if not (question.pods or _has_changes(request)):
            await self._conclude(question, None)
            return
        began = self._clock()
        try:
            reply = await self._worker.ask(request)
        except WorkerLost as error:
            self._quarantine.failed(self._clock(), self._clock() - began, str(error))
            self._metrics.quarantined.set(len(self._quarantine))
            raise
        self._holds = reply.holds.known
        if question.pods:
            self._deadline.took(reply.seconds)
        self._quarantine.succeeded(self._clock())
        self._metrics.quarantined.set(len(self._quarantine))
        self._metrics.rounds.labels(reply.method).inc()
        self._metrics.round_seconds.observe(reply.seconds)
        self._batcher.took(reply.seconds)
        for name, hits, refreshed, misses, rows in reply.cached:
            self._metrics.verdicts.labels(name, "hit").inc(hits)
            self._metrics.verdicts.labels(name, "refreshed").inc(refreshed)
            self._metrics.verdicts.labels(name, "miss").inc(misses)
            self._metrics.verdict_rows.labels(name).inc(rows)
        await self._deliver(question, reply)
        self.on_planned(request, question.pods, reply)
        await self._conclude(question, reply)

    async def _begin_anew(self) -> None:
        """Starts the worker and tells it everything, with no pod to plan: what fails here no pod is at fault for."""
        if self._told:
            self._told = False
            self._metrics.worker_restarts.inc()
            _log.error("worker replaced", problem="it died between two rounds")
        await self._worker.start()
        self._state.mark_all_dirty()
        await self._worker.ask(await self._request(self._moment(), [], fresh=True))
        self._told = True

    def _moment(self) -> _Moment:
        """What changed, as of now: what changes while a request is put together counts as newer than the plan."""
        return _Moment(self._state.generation, self._state.take_changes(), self._policies.ordered, self._policies.uids)

    async def _question(self) -> _Question:
        state, now = self._state, self._clock()
        self._asked = now
        moment = self._moment()
        ordered = moment.policies
        places = {policy.name: at for at, policy in enumerate(ordered)}
        blocked: list[tuple[Pod, Policy]] = []
        governed: dict[str, tuple[int, Delivery]] = {}
        plannable: list[Pod] = []
        async for pod in in_bursts(state.plannable()):
            policy = self._policies.of(pod, self._state.namespaces)
            steered = policy is not None and policy.delivery is Delivery.EXTENDER and not pod.unjudged
            if pod.gated and not steered and pod.namespace in self._state.namespaces:
                self._steering.open(pod)  # nothing would come of its waiting there
            if policy is None:
                continue  # nobody's; or its namespace is on its way, and will ask for another round
            place = places.get(policy.name)
            if place is None or ordered[place] is not policy:
                continue  # the policies changed since this began: the next round, already asked for, takes the pod up
            if pod.left_alone(policy.delivery) or (pod.gated and policy.delivery is Delivery.BINDER):
                blocked.append((pod, policy))
                continue
            if self._resting.rests(pod):
                continue
            plannable.append(pod)
            governed[pod.key] = place, policy.delivery
        choice = self._quarantine.choose(plannable, now)
        asked = [(pod, *governed[pod.key]) for pod in choice.pods]
        request = await self._request(moment, asked)
        resting = [(pod, ordered[governed[pod.key][0]], reason) for pod, reason in choice.resting]
        return _Question(request, [pod for pod, *_ in asked], blocked, resting, choice.more, moment.uids)

    async def _request(
        self, moment: _Moment, asked: Sequence[tuple[Pod, int, Delivery]], *, fresh: bool = False
    ) -> RoundRequest:
        """All that changed, and pods to plan, each with the place of its policy and its delivery."""
        self._number += 1
        state, changes = self._state, moment.changes
        classes: dict[PodClass, int] = {}
        kinds: dict[Kind, int] = {}
        neighbours = [
            (kinds.setdefault(kind, len(kinds)), node, by)
            async for (kind, node), by in in_bursts(changes.neighbours.items())
        ]
        # Uses that change while this goes on are sent as they are then, and once more with the next round.
        uses = [
            Use(name, _capped(use.amounts), use.pods, use.cpu, use.memory, tuple(use.ports), tuple(use.volumes))
            async for name, use in in_bursts(changes.uses.items())
        ]
        waiting: list[Waiting] = []
        async for pod, place, _ in in_bursts(asked):
            pod_class = without(pod.pod_class, self._resting.refusing(pod))
            waiting.append(
                Waiting(
                    key=pod.key,
                    pod_class=classes.setdefault(pod_class, len(classes)),
                    policy=place,
                    created=pod.created,
                    kind=kinds.setdefault(pod.kind, len(kinds)),
                    replaces=self._replaced(pod, moment.policies[place]),
                    since=self._waits_since(pod),
                )
            )
        telling = state.telling_gangs([(pod, delivery) for pod, _, delivery in asked])
        async for _ in in_bursts(telling.steps()):
            pass
        for each, of_it in zip(waiting, telling.names, strict=True):
            each.gangs = of_it
        governed = ((pod, moment.policies[place]) for pod, place, _ in asked)
        lasting = await self._lasting.news(governed, self._wall(), fresh=fresh)
        images: dict[tuple[str, int], int] = {}
        reports = [told(name, report, images) async for name, report in in_bursts(changes.reports.items())]
        return RoundRequest(
            number=self._number,
            generation=moment.generation,
            now=self._wall(),
            fresh=fresh,
            nodes=changes.nodes,
            gone=changes.gone,
            uses=uses,
            namespaces=changes.namespaces,
            kinds=list(kinds),
            neighbours=neighbours,
            images=list(images),
            reports=reports,
            policies=list(moment.policies),
            classes=list(classes),
            waiting=waiting,
            budget=self._budget,
            storage=changes.storage,
            storage_gone=changes.storage_gone,
            gangs=telling.gangs,
            lasting=lasting,
            holds=Holds(self._clock(), self._holds),
            deadline=0.0 if fresh else self._deadline.of(len(asked), len(classes)),
        )

    def _replaced(self, pod: Pod, policy: Policy) -> Replaced | None:
        """Whose place it is to take, if it may."""
        found = self._state.replaced(pod)
        old = None if found is None or found.left or found.flaw else self._state.pods.get(found.key)
        if old is None:
            return found
        why = forbidden(pod, old, policy, self._policies.of(old, self._state.namespaces))
        return Replaced(old.key, flaw=why) if why else found

    async def _deliver(self, question: _Question, reply: RoundReply) -> None:
        request = question.request
        dropped = await self._dispatch.carry_out(request, question.pods, reply)
        for at, scores in reply.scores:
            self._steering.score(question.pods[at].pod_class, request.policies[request.waiting[at].policy].name, scores)
        if dropped:
            self._batcher.touch()
        async for at, reason in in_bursts(reply.left):
            policy, pod = request.policies[request.waiting[at].policy], question.pods[at]
            if policy.delivery is Delivery.OBSERVE:
                continue
            self._state.give_up_place(pod)
            text = reply.reasons[reason]
            if refusing := self._resting.refusing(pod):
                text += f" kube-scheduler refused it on {', '.join(refusing)}: {pod.told}"
            self._waiting.tell(pod, text, steered=policy.delivery is Delivery.EXTENDER)
            self._give_way(pod, policy)

    def _give_way(self, pod: Pod, policy: Policy) -> None:
        """There is no plan for a pod: kube-scheduler may look for itself where the plan is but a wish."""
        free = not pod.gated and pod.gang is None
        if policy.delivery is Delivery.EXTENDER and policy.steering is Steering.PREFER and free:
            self._steering.give_way(pod)

    async def _conclude(self, question: _Question, reply: RoundReply | None) -> None:
        request = question.request
        for pod, policy, reason in question.resting:
            if policy.delivery is not Delivery.OBSERVE:
                self._state.give_up_place(pod)
                self._waiting.tell(pod, reason, steered=policy.delivery is Delivery.EXTENDER)
                self._give_way(pod, policy)
        for pod, policy in question.blocked:
            # A closed gate is written on the pod by the API server itself, in its own words. What we do not judge
            # kube-scheduler does, where it is to bind the pod; what cannot be read it may not even see.
            if policy.delivery is Delivery.OBSERVE or pod.deleting or "scheduling gates" in pod.blocked:
                continue
            if policy.delivery is Delivery.BINDER or pod.blocked:
                reason = pod.left_alone(policy.delivery)
                self._waiting.tell(pod, reason, steered=policy.delivery is Delivery.EXTENDER)
        placed = [0] * len(request.policies)
        left = [0] * len(request.policies)
        for at, *_ in reply.placements if reply is not None else ():
            placed[request.waiting[at].policy] += 1
        for at, _ in reply.left if reply is not None else ():
            left[request.waiting[at].policy] += 1
        names = {policy.name: at for at, policy in enumerate(request.policies)}
        for policy in (*(each[1] for each in question.blocked), *(each[1] for each in question.resting)):
            left[names[policy.name]] += 1
        if reply is not None:
            self._report(question, reply, placed, left)
        self._metrics.waiting.set(sum(left))
        self._prune()

    def _prune(self) -> None:
        """Forgets what is gone: pods that wait no more, policies, and what no round asked about for long."""
        waiting = self._state.waiting
        self._resting.prune(waiting.keys())
        self._since = {key: each for key, each in self._since.items() if key in waiting}
        self._quarantine.forget_all_but(waiting.values())
        if self._number % GENERATION == 0:
            self._policies.age()
            self._state.neighbours.age()

    def _report(self, question: _Question, reply: RoundReply, placed: Sequence[int], left: Sequence[int]) -> None:
        """Keeps what policies are told; what was of policy objects that are gone is dropped."""
        request, standing = question.request, set(self._policies.uids.values())
        self.reports = {uid: each for uid, each in self.reports.items() if uid in standing}
        self.contradictions = {}
        sentences: dict[int, list[str]] = {}
        for at, sentence in reply.contradictions:
            sentences.setdefault(at, []).append(sentence)
        for at, policy in enumerate(request.policies):
            uid = question.uids.get(policy.name, "")
            if uid not in standing:
                continue  # the built-in default, and objects that were deleted during the round
            if at in sentences:
                self.contradictions[uid] = (policy, sentences[at])
            if placed[at] or left[at]:
                self.reports[uid] = RoundReport(
                    request.number, request.now, placed[at], left[at], reply.costs[at], reply.gap, reply.certified
                )


def _has_changes(request: RoundRequest) -> bool:
    changes = (request.nodes, request.gone, request.uses, request.namespaces, request.neighbours, request.reports)
    return any(changes) or bool(request.storage or request.storage_gone)


def _capped(amounts: Mapping[str, int]) -> Amounts:
    """Sums of amounts may exceed what a message and an array cell can hold; beyond that, more is no fuller."""
    return tuple((name, min(amount, MAX_AMOUNT)) for name, amount in amounts.items())
