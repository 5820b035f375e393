"""The round loop: from the state to a request, from the plan to reservations and bindings.

A plan is checked against the newest state before it leaves: what no longer holds is dropped and planned again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from flowcore.model.neighbours import Kind
from flowcore.model.pods import Pod, PodClass, without
from flowcore.model.policies import Delivery, Policy, Steering
from flowcore.model.quantities import MAX_AMOUNT
from flowcore.model.resources import Amounts
from thalweg_operator.batcher import Batcher
from thalweg_operator.binder import Binder
from thalweg_operator.dispatch import Dispatch, in_bursts
from thalweg_operator.errors import WorkerLost
from thalweg_operator.health import Progress
from thalweg_operator.metrics import Metrics
from thalweg_operator.policies import PolicyStore
from thalweg_operator.state import ClusterState
from thalweg_operator.steering import PodSteering
from thalweg_operator.waiting import WaitingPods
from thalweg_operator.wire import RoundReply, RoundRequest, Use, Waiting, told
from thalweg_operator.worker_client import WorkerClient

_log = structlog.get_logger()
_LONGEST_BACKOFF = 60.0
#: Seconds that a pod rests where kube-scheduler may be placing another one just now.
_CONTENDED_REST = 0.25
#: Seconds that a pod and a node that kube-scheduler refused it rest at most.
_LONGEST_REST = 300.0


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


@dataclass(slots=True)
class _Backoff:
    uid: str
    until: float
    tries: int


@dataclass(slots=True)
class _Refusals:
    """Nodes that kube-scheduler refused for a pod: until when the pair rests, the generation then, how often."""

    uid: str
    nodes: dict[str, tuple[float, int, int]]


@dataclass(slots=True)
class _Question:
    """A request and the pods it speaks of, by place; ``whole`` unless a lost worker made it ask for less."""

    request: RoundRequest
    pods: list[Pod]
    blocked: list[tuple[Pod, Policy]] = field(default_factory=list)
    whole: bool = True


class RoundLoop:
    """Runs rounds whenever the batcher says so.

    Attributes:
        progress: whether rounds are made.
        reports: the last round of each policy that had pods waiting.
        contradictions: policies that rule some of their own pods out, as they were then, and how.
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
        clock: Callable[[], float] = time.time,
        progress: Progress | None = None,
    ) -> None:
        self._state, self._policies, self._worker = state, policies, worker
        self._binder, self._steering, self._waiting, self._metrics = binder, steering, waiting, metrics
        self._batcher, self._resync, self._budget, self._clock = batcher, resync, budget, clock
        self._dispatch = Dispatch(state, policies, binder, steering, metrics, self._rest_awhile)
        self._number = 0
        self._told = False
        self._most: int | None = None
        self._asked_for = self._turn = 0
        self._asked = 0.0
        self._backoffs: dict[str, _Backoff] = {}
        self._refusals: dict[str, _Refusals] = {}
        self.progress = progress or Progress()
        self.reports: dict[str, RoundReport] = {}
        self.contradictions: dict[str, tuple[Policy, list[str]]] = {}

    async def run(self) -> None:
        """Runs until cancelled; the worker is started and replaced as needed."""
        failures = 0
        try:
            while True:
                await self._batcher.wait(self._next_due())
                self.progress.began()
                try:
                    await self._round()
                    failures = 0
                    self.progress.ended(success=True)
                except WorkerLost as error:
                    self.progress.ended(success=False)
                    failures += 1
                    self._told = False
                    # The same question would most likely end the same way: ask for half of it.
                    self._most = max(1, self._asked_for // 2)
                    self._metrics.worker_restarts.inc()
                    _log.error("worker replaced", problem=str(error), failures=failures)
                    await asyncio.sleep(min(10.0, 0.05 * 2 ** min(failures, 8)))
                    self._batcher.touch()
        finally:
            await self._worker.stop()

    def refused(self, pod: Pod, reason: str, *, steered: bool = False) -> None:
        """A pod could not be bound where it was planned: it is told so, and rests before it is planned again."""
        before = self._backoffs.get(pod.key)
        tries = before.tries + 1 if before is not None and before.uid == pod.uid else 1
        self._backoffs[pod.key] = _Backoff(pod.uid, self._clock() + _rest(tries - 1, _LONGEST_BACKOFF), tries)
        self._waiting.tell(pod, reason, steered=steered)

    def _rest_awhile(self, pod: Pod) -> None:
        """kube-scheduler may be placing others where the pod was to go."""
        self._backoffs[pod.key] = _Backoff(pod.uid, self._clock() + _CONTENDED_REST, 0)

    def rejected(self, pod: Pod, node: str) -> None:
        """kube-scheduler's own filters refuse a node for a pod: the pair rests, longer each time."""
        known = self._refusals.get(pod.key)
        if known is None or known.uid != pod.uid:
            known = self._refusals[pod.key] = _Refusals(pod.uid, {})
        tries = known.nodes.get(node, (0.0, 0, 0))[2] + 1
        known.nodes[node] = (self._clock() + _rest(tries, _LONGEST_REST), self._state.generation, tries)
        self._batcher.touch()

    def _refusing(self, pod: Pod, now: float) -> list[str]:
        """Nodes that this pod is not to be planned for now: refused not long ago, and no different since."""
        known = self._refusals.get(pod.key)
        if known is None or known.uid != pod.uid:
            return []
        # A pair that is refused again soon after its rest goes on where it was.
        known.nodes = {node: each for node, each in known.nodes.items() if each[0] + _LONGEST_REST > now}
        return sorted(
            node
            for node, (until, generation, _) in known.nodes.items()
            if until > now and not self._state.node_changed_since(node, generation)
        )

    def _next_due(self) -> float:
        now = self._clock()
        # Rests that end after the last round began, not after now: one that ended while it ran was skipped by it.
        ends = [each.until for each in self._backoffs.values() if each.until > self._asked]
        ends += [until for each in self._refusals.values() for until, *_ in each.nodes.values() if until > self._asked]
        return min([self._resync, *(max(0.0, end - now) for end in ends)])

    async def _round(self) -> None:
        fresh = not (self._told and self._worker.alive)
        if fresh:
            if self._told:
                self._told = False
                self._metrics.worker_restarts.inc()
                _log.error("worker replaced", problem="it died between two rounds")
            await self._worker.start()
            self._state.mark_all_dirty()
        question = await self._question(fresh=fresh)
        request = question.request
        if not (question.pods or request.fresh or _has_changes(request)):
            await self._conclude(question, None)
            return
        self._asked_for = len(question.pods)
        reply = await self._worker.ask(request)
        self._told = True
        if self._most is not None:
            self._most = None if question.whole else self._most * 2
            self._batcher.touch()
        self._metrics.rounds.labels(reply.method).inc()
        self._metrics.round_seconds.observe(reply.seconds)
        self._batcher.took(reply.seconds)
        for name, hits, refreshed, misses, rows in reply.cached:
            self._metrics.verdicts.labels(name, "hit").inc(hits)
            self._metrics.verdicts.labels(name, "refreshed").inc(refreshed)
            self._metrics.verdicts.labels(name, "miss").inc(misses)
            self._metrics.verdict_rows.labels(name).inc(rows)
        await self._deliver(question, reply)
        await self._conclude(question, reply)

    async def _question(self, *, fresh: bool) -> _Question:
        self._number += 1
        state, now = self._state, self._clock()
        self._asked = now
        # Both at one moment: what changes while the request is put together counts as newer than the plan.
        generation = state.generation
        changes = state.take_changes()
        classes: dict[PodClass, int] = {}
        ordered = self._policies.ordered
        policies = {policy.name: at for at, policy in enumerate(ordered)}
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
        pods: list[Pod] = []
        blocked: list[tuple[Pod, Policy]] = []
        waiting: list[Waiting] = []
        asked: list[tuple[Pod, Delivery]] = []
        plannable = state.plannable()
        whole = self._most is None or len(plannable) <= self._most
        if self._most is not None and not whole:
            # In turns, so that pods for which there is no room do not keep the others out.
            start = self._turn % len(plannable)
            plannable = (plannable[start:] + plannable[:start])[: self._most]
            self._turn = start + self._most
        async for pod in in_bursts(plannable):
            policy = self._policies.of(pod, self._state.namespaces)
            steered = policy is not None and policy.delivery is Delivery.EXTENDER and not pod.unjudged
            if pod.gated and not steered and pod.namespace in self._state.namespaces:
                self._steering.open(pod)  # nothing would come of its waiting there
            if policy is None:
                continue  # nobody's; or its namespace is on its way, and will ask for another round
            place = policies.get(policy.name)
            if place is None or ordered[place] is not policy:
                continue  # the policies changed since this began: the next round, already asked for, takes the pod up
            if pod.left_alone(policy.delivery) or (pod.gated and policy.delivery is Delivery.BINDER):
                blocked.append((pod, policy))
                continue
            backoff = self._backoffs.get(pod.key)
            if backoff is not None and backoff.uid == pod.uid and backoff.until > now:
                continue
            pods.append(pod)
            asked.append((pod, policy.delivery))
            pod_class = without(pod.pod_class, self._refusing(pod, now)) if self._refusals else pod.pod_class
            waiting.append(
                Waiting(
                    key=pod.key,
                    pod_class=classes.setdefault(pod_class, len(classes)),
                    policy=place,
                    created=pod.created,
                    kind=kinds.setdefault(pod.kind, len(kinds)),
                    replaces=state.replaced(pod),
                )
            )
        names, gangs = state.gangs_of(asked)
        for each, of_it in zip(waiting, names, strict=True):
            each.gangs = of_it
        images: dict[tuple[str, int], int] = {}
        reports = [told(name, report, images) async for name, report in in_bursts(changes.reports.items())]
        request = RoundRequest(
            number=self._number,
            generation=generation,
            now=now,
            fresh=fresh,
            nodes=changes.nodes,
            gone=changes.gone,
            uses=uses,
            namespaces=changes.namespaces,
            kinds=list(kinds),
            neighbours=neighbours,
            images=list(images),
            reports=reports,
            policies=list(ordered),
            classes=list(classes),
            waiting=waiting,
            budget=self._budget,
            storage=changes.storage,
            storage_gone=changes.storage_gone,
            gangs=gangs,
        )
        return _Question(request, pods, blocked, whole=whole)

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
            if refusing := self._refusing(pod, self._clock()):
                text += f" kube-scheduler refused it on {', '.join(refusing)}: {pod.told}"
            self._waiting.tell(pod, text, steered=policy.delivery is Delivery.EXTENDER)
            free = not pod.gated and pod.gang is None
            if policy.delivery is Delivery.EXTENDER and policy.steering is Steering.PREFER and free:
                self._steering.give_way(pod)

    async def _conclude(self, question: _Question, reply: RoundReply | None) -> None:
        request, now = question.request, self._clock()
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
        for _, policy in question.blocked:
            left[names[policy.name]] += 1
        if reply is not None:
            self.contradictions = {}
            for at, sentence in reply.contradictions:
                policy = request.policies[at]
                self.contradictions.setdefault(policy.name, (policy, []))[1].append(sentence)
            for at, policy in enumerate(request.policies):
                if placed[at] or left[at]:
                    self.reports[policy.name] = RoundReport(
                        request.number, now, placed[at], left[at], reply.costs[at], reply.gap, reply.certified
                    )
            _log.debug("round", number=request.number, placed=len(reply.placements), left=len(reply.left),
                       method=reply.method, seconds=round(reply.seconds, 4))  # fmt: skip
        self._metrics.waiting.set(sum(left))
        if len(self._refusals) > 1000:
            self._refusals = {key: r for key, r in self._refusals.items() if key in self._state.waiting}
        if len(self._backoffs) > 1000:
            self._backoffs = {key: b for key, b in self._backoffs.items() if key in self._state.waiting}


def _rest(tries: int, most: float) -> float:
    """Seconds, twice as many with each try."""
    return min(most, 2.0 ** min(tries, 16))


def _has_changes(request: RoundRequest) -> bool:
    changes = (request.nodes, request.gone, request.uses, request.namespaces, request.neighbours, request.reports)
    return any(changes) or bool(request.storage or request.storage_gone)


def _capped(amounts: Mapping[str, int]) -> Amounts:
    """Sums of amounts may exceed what a message and an array cell can hold; beyond that, more is no fuller."""
    return tuple((name, min(amount, MAX_AMOUNT)) for name, amount in amounts.items())
