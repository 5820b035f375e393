"""Steers kube-scheduler along the plan: nominates in waves, answers for the extender, follows what becomes of it.

A planned pod holds a reservation from the plan to its binding. On the way it is queued for its wave or stands in line,
is nominated, and let through when kube-scheduler asks about the node. What kube-scheduler erases is written again if
an attempt that knew nothing of the nomination erased it; if the node was refused, the pair of pod and node rests. Where
kube-scheduler asks about a pod in line, a node that is planned for a pod like it will do as well.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice, takewhile

import structlog

from flowcore.model.constrained import all_or_none
from flowcore.model.guidance import HELD, UNSEEN, Asked, Guidance
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import Delivery, Steering
from thalweg_operator.companies import Companies, Place
from thalweg_operator.metrics import Metrics
from thalweg_operator.nominator import Nominator, Write
from thalweg_operator.policies import PolicyStore
from thalweg_operator.pools import Alike, Pools
from thalweg_operator.state import By, ClusterState
from thalweg_operator.turns import WHENEVER, Turn, Turns
from thalweg_operator.wire import decode_scores

_log = structlog.get_logger()
#: What became of a nomination is looked at this long after it was erased: mostly the binding follows at once.
_GRACE = 0.1
#: The same where kube-scheduler was let through with the node.
_BINDING_GRACE = 2.0
#: From kube-scheduler's question to the end of its attempt, with what it writes about that.
_ATTEMPT_SECONDS = 5.0
#: A nomination is written again this often before it counts as refused.
_REWRITES = 5
#: A nomination that nobody followed is taken back; kube-scheduler provisions volumes for ten minutes at most.
_FOLLOWED_SECONDS = 60.0
_PROVISIONED_SECONDS = 660.0
#: From an answer that lets a pod through to its binding, if that comes at all. Claims: as above.
_PASSING_SECONDS = 10.0
#: A pod that was held because our watch had not shown it is woken after so many seconds without another question;
#: twice as many each time, up to the last.
_UNSEEN_SECONDS, _UNSEEN_LONGEST = 1.0, 60.0
_SETTLE_EVERY = 5.0
#: kube-scheduler is at work while it asks again within so many seconds.
_AT_WORK = 0.25
#: How much one more question counts in the share of those that could be answered with a node, and what share will do.
_MEETING_WEIGHT = 0.05
_MOSTLY = 0.5
#: Seconds that a pod stands in line at most, and how many leave the line at once.
_IN_LINE = 10.0
_AT_ONCE = 25
#: Seconds after which a nomination without an answer is looked at.
_OVERDUE = 5.0
#: Classes whose scores are kept, the newest.
_SCORED = 64
_TICK = 0.05


class Phase(Enum):
    """How far a steered pod has come."""

    #: For its wave.
    QUEUED = "queued"
    #: Fresh: kube-scheduler will come to it, and perhaps upon its node, by itself. Nobody knows of its node yet.
    IN_LINE = "in line"
    NOMINATED = "nominated"
    LET_THROUGH = "let through"


@dataclass(frozen=True, slots=True)
class Planned:
    """A placement that has its reservation; chain and wave, unit and spare as in ``flowcore.rounds.plan.Placement``."""

    pod: Pod
    node: str
    turn: Turn = WHENEVER
    unit: str = ""
    spare: bool = False


@dataclass(slots=True)
class _Steered:
    """A pod with a reservation of ours that kube-scheduler is to bind.

    Attributes:
        company: of which it is a part; None for pods that no gate holds back, or that are by themselves.
        turn: its chain and wave.
        since: when it came into its phase.
        writes: nominations so far; only the last one counts.
        writing: that one is on its way to the API server.
        crowded: kube-scheduler asked about the node, and we kept the pod off it for the sake of others.
        refused: kube-scheduler asked about other nodes although it knew of the nomination: its filters refuse the node.
        expired: nobody followed the nomination.
        clearing: that it is taken back is on its way to the API server.
    """

    uid: str
    node: str
    phase: Phase
    since: float
    company: Place | None = None
    turn: Turn = WHENEVER
    rewrites: int = 0
    writes: int = 0
    writing: bool = False
    crowded: bool = False
    refused: bool = False
    expired: bool = False
    clearing: bool = False


@dataclass(frozen=True, slots=True)
class _Held:
    """The last answer that held a pod: when, and which nomination that attempt knew of."""

    uid: str
    when: float
    nominated: str


class PodSteering:
    """See the module.

    Attributes:
        on_rejected: called with pod and node when kube-scheduler's own filters refuse the node.
        on_refused: called with pod and reason when the API server refuses a write to the pod, whatever the node.
    """

    def __init__(
        self,
        state: ClusterState,
        policies: PolicyStore,
        nominator: Nominator,
        metrics: Metrics,
        ready: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state, self._policies, self._nominator, self._metrics = state, policies, nominator, metrics
        self._ready, self._clock = ready, clock
        self.on_rejected: Callable[[Pod, str], None] = lambda _pod, _node: None
        self.on_refused: Callable[[Pod, str], None] = lambda _pod, _reason: None
        self._steered: dict[str, _Steered] = {}
        #: Those of them in line.
        self._line = Pools()
        #: Those queued for their wave.
        self._queue = Pools()
        #: When to look at pods whose nomination may be lost.
        self._doubtful: dict[str, float] = {}
        self._turns = Turns(self._queued)
        self._companies = Companies()
        self._plans = 0
        #: Pods answered with no node, by key: they sleep until something wakes them.
        self._held: dict[str, _Held] = {}
        #: Pods that were held before our watch showed them: when to wake each, and the pause after that.
        self._unseen: dict[str, tuple[float, float]] = {}
        #: Pods of ``Prefer`` that the plan has no node for, by key, with their uid: kube-scheduler may choose.
        self._free: dict[str, str] = {}
        self._scores: dict[tuple[PodClass, str], bytes] = {}
        #: Pods whose gate is being opened, by key and uid, with what they were steered by then.
        self._opening: dict[tuple[str, str], _Steered | None] = {}
        #: Pods whose nomination by somebody else is being cleared, by key and uid.
        self._clearing: set[tuple[str, str]] = set()
        self._begun = False
        #: When kube-scheduler asked last about a pod that it is to bind.
        self._asked = 0.0
        #: The share of pods in line, of those asked about of late, for which there was a node among those asked about.
        self._meetings = 1.0
        self._settled = clock()
        self._heeded = policies.ordered

    # --- from the rounds ---

    def send(self, planned: Sequence[Planned]) -> None:
        """Carries out placements that have their reservations.

        The gates of a unit's pods open together once all of them are nominated, those of one wave at a time. Placements
        whose reservation ended since then are left out: the pod was bound, is gone, or somebody nominated it.
        """
        self._plans += 1
        queued: list[tuple[Pod, Turn]] = []
        free: list[Planned] = []
        for each in planned:
            pod, node = each.pod, each.node
            reservation = self._state.reservations.get(pod.key)
            if (
                reservation is None
                or (reservation.pod.uid, reservation.node, reservation.by) != (pod.uid, node, By.STEERING)
                or pod.key in self._steered
            ):
                continue
            self._free.pop(pod.key, None)
            company = Place(self._plans, each.unit, each.turn[1]) if each.unit and pod.gated else None
            self._steered[pod.key] = _Steered(pod.uid, node, Phase.QUEUED, self._clock(), company, each.turn)
            if company is not None:
                self._companies.join(company, pod.key, spare=each.spare)
            if each.turn == WHENEVER:
                free.append(each)
                continue
            queued.append((pod, each.turn))
            policy = self._policies.of(pod, self._state.namespaces)
            if policy is not None and _tradable(each):
                self._queue.add(pod.key, Alike(pod.pod_class, pod.kind, policy.name), node)
        for each in free:
            pod = each.pod
            policy = self._policies.of(pod, self._state.namespaces)
            # One that was tried in vain sleeps until it is nominated; kube-scheduler comes to the others by itself. But
            # those with rules are like few others: it would rarely meet a node that is planned for one like them.
            asleep = pod.gated or pod.told or pod.key in self._held
            if policy is None or asleep or pod.rules is not None or not _tradable(each):
                self._nominate(pod)
                continue
            self._steered[pod.key].phase = Phase.IN_LINE
            self._line.add(pod.key, Alike(pod.pod_class, pod.kind, policy.name), each.node)
        self._advance()
        self._turns.add(queued)
        self._begin()

    def withdraws(self, unit: str) -> bool:
        """Whether nominations of a unit are being taken back: until they are, the rest of it is not to be planned."""
        return self._companies.withdraws(unit)

    @property
    def settled(self) -> bool:
        """Whether no nomination is being taken back."""
        return not any(each.expired for each in self._steered.values())

    def give_way(self, pod: Pod) -> None:
        """The plan has no node for a pod of ``Prefer``: kube-scheduler may look for itself."""
        if self._state.replaced(pod) is not None:
            return  # it may go to one node only
        known = self._free.get(pod.key)
        if known != pod.uid:
            self._free[pod.key] = pod.uid
            self._wake(pod)

    def score(self, pod_class: PodClass, policy: str, scores: bytes) -> None:
        """What the last plan's costs say of nodes for pods of a class that ``Prefer`` governs."""
        self._scores.pop((pod_class, policy), None)
        self._scores[pod_class, policy] = scores
        if len(self._scores) > _SCORED:
            del self._scores[next(iter(self._scores))]

    def open(self, pod: Pod) -> None:
        """Opens our gate, for pods that need not wait behind it. What is refused is tried again with pauses."""
        this, steered = (pod.key, pod.uid), self._steered.get(pod.key)
        if this in self._opening and self._opening[this] is steered:
            return
        self._opening[this] = steered

        def wanted() -> bool:
            known = self._state.pods.get(pod.key)
            there = known is not None and known.uid == pod.uid and known.gated
            # Where the plan changed since, it decides anew.
            return there and self._steered.get(pod.key) is steered and (steered is None or not steered.expired)

        def done(_problem: str | None) -> None:
            if self._opening.get(this, self) is steered:
                del self._opening[this]

        def refused(reason: str) -> None:
            self.on_refused(pod, f"the API server refused to remove its scheduling gate: {reason}")

        self._nominator.put(Write("open", pod, "", wanted, done, refused))

    # --- from the state ---

    def follow(self, key: str) -> None:
        """A pod that is or was nominated, or has a reservation, changed."""
        pod, reservation = self._state.pods.get(key), self._state.reservations.get(key)
        steered = self._steered.get(key)
        if pod is not None and UNSEEN in pod.told:
            self._unseen.setdefault(key, (self._clock() + _UNSEEN_SECONDS, _UNSEEN_SECONDS))
        if pod is None or reservation is None or reservation.by is not By.STEERING:
            if steered is not None:
                self._ended(key, pod)
            if pod is not None and pod.gated and reservation is not None and reservation.by is By.OTHERS:
                self.open(pod)  # whoever nominated it waits for that
            return
        if steered is None or steered.uid != pod.uid:
            # Written by us before a restart, or before the policy changed. Without a nomination it is planned just now.
            if self._begun and pod.nominated:
                self._adopt(pod)
            return
        if steered.phase is Phase.QUEUED:
            alike = self._queue.alike(key)
            if alike is not None and not alike.fits(pod):
                self._queue.remove(key)
            return
        if steered.phase is Phase.IN_LINE:
            alike = self._line.alike(key)
            if pod.told or alike is None or not alike.fits(pod):
                self._nominate(pod)  # it sleeps now, or is like no other any more
            return
        lost = pod.nominated != steered.node and (pod.planned == steered.node or steered.expired)
        if lost:
            binding = steered.phase is Phase.LET_THROUGH and not (steered.refused or steered.expired)
            self._doubt(key, _BINDING_GRACE if binding else _GRACE)
        elif pod.nominated == steered.node and not steered.refused:
            self._doubtful.pop(key, None)

    def adopt_all(self) -> None:
        """Takes up what is nominated already: called once, when state and policies are known."""
        self._begun = True
        for key in list(self._state.reservations):
            self.follow(key)

    def _adopt(self, pod: Pod) -> None:
        node = self._state.reservations[pod.key].node
        self._steered[pod.key] = steered = _Steered(pod.uid, node, Phase.NOMINATED, self._clock())
        policy = self._policies.of(pod, self._state.namespaces)
        if policy is not None and policy.delivery is not Delivery.EXTENDER:
            self._take_back(pod, steered)
        elif pod.gated and (pod.gang is not None or (policy is not None and all_or_none(pod.labels, policy))):
            self._take_back(pod, steered)  # the others may not have come as far: it is planned anew, with them
        elif pod.gated:
            self.open(pod)

    def _ended(self, key: str, pod: Pod | None) -> None:
        if pod is not None and pod.node_name:
            self._let_go(self._companies.done(self._steered[key].company, key))
        steered = self._forgotten(key)
        if pod is not None and pod.node_name:
            self._metrics.steered.labels("bound" if pod.node_name == steered.node else "elsewhere").inc()
        self._through(key)

    # --- for the extender ---

    def guidance(self, asked: Asked, nodes: Sequence[str]) -> Guidance | str:
        """What to answer about a pod; a text: why nothing can be said now."""
        if not self._ready():
            return "not in sync yet"
        pod = self._pod(asked)
        if pod is None:
            return self._unknown(asked)
        policy = self._policies.of(pod, self._state.namespaces)
        if policy is None or policy.delivery is Delivery.OBSERVE or pod.unjudged:
            return Guidance(taken=self._state.crowded(pod, nodes))
        if policy.delivery is Delivery.BINDER:
            return Guidance(managed=True, hold=True)
        # One pod of a gang is not to go where it likes.
        require = policy.steering is Steering.REQUIRE or pod.gang is not None
        steered = self._steered.get(pod.key)
        if steered is not None and steered.uid == asked.uid and not steered.refused:
            holder = self._holder(pod, steered, policy.name, nodes)
            refuses = asked.nominated == steered.node and steered.node not in nodes and holder == pod.key
            if not holder:
                return Guidance(managed=True, hold=True)
            if require or not refuses:
                # What one that it would change places with holds there is its own then.
                guidance = self._to(self._state.pods[holder], self._steered[holder].node, nodes, hold=True)
                steered.crowded = guidance.node in guidance.taken
                return guidance
        reservation = self._state.reservations.get(pod.key)
        if reservation is not None and reservation.by is By.OTHERS:
            return self._to(pod, reservation.node, nodes, hold=require)
        if require or (self._free.get(pod.key) != asked.uid and steered is None):
            return Guidance(managed=True, hold=True)
        scores = self._scores.get((pod.pod_class, policy.name))
        return Guidance(
            managed=True,
            taken=self._state.crowded(pod, nodes),
            scores={} if scores is None else decode_scores(scores),
        )

    def _to(self, pod: Pod, node: str, nodes: Sequence[str], *, hold: bool) -> Guidance:
        """To this node, if its room is still there: what the API server has nominated is reserved without asking."""
        asked_of = nodes if not hold else [node] if node in nodes else []
        return Guidance(managed=True, node=node, hold=hold, taken=self._state.crowded(pod, asked_of))

    def answered(self, asked: Asked, outcome: str, passed: Sequence[str]) -> None:
        """What filter said: steered (to the node that we named), held, or passed (to any of these nodes)."""
        key, now, pod = asked.key, self._clock(), self._pod(asked)
        if pod is None:
            return
        self._unseen.pop(key, None)
        until = now + (_PROVISIONED_SECONDS if pod.unbindable else _PASSING_SECONDS)
        self._state.beside.pass_on(pod, frozenset(passed), until)
        steered = self._steered.get(key)
        if steered is not None and (
            steered.uid != asked.uid or (steered.phase is Phase.QUEUED and outcome != "steered")
        ):
            steered = None
        if steered is not None or outcome == "held":
            self._asked = now
        if steered is not None and steered.phase is Phase.IN_LINE:
            self._meetings += _MEETING_WEIGHT * ((1.0 if outcome == "steered" else 0.0) - self._meetings)
        if steered is not None and outcome == "steered":
            if passed[0] != steered.node:
                policy = self._policies.of(pod, self._state.namespaces)
                self._swap(key, self._holder(pod, steered, "" if policy is None else policy.name, passed))
            self._line.remove(key)
            self._queue.remove(key)
            if steered.phase is not Phase.LET_THROUGH:
                steered.phase, steered.since = Phase.LET_THROUGH, now
            self._held.pop(key, None)
            self._through(key)
            return
        if steered is not None and asked.nominated == steered.node:
            if steered.crowded:
                self._take_back(pod, steered)
            else:
                # It knew of the nomination and asks about other nodes: its own filters refuse this one.
                steered.refused = True
                self._doubt(key, _GRACE)
        if outcome == "held":
            self._held[key] = _Held(asked.uid, now, asked.nominated)
            if steered is None:
                self._clear_others(pod, asked.nominated)
            elif steered.phase is Phase.IN_LINE or (steered.phase is Phase.LET_THROUGH and not steered.refused):
                # It sleeps now, and its nomination is to wake it. Or it came upon the node by itself, and that attempt
                # failed: told of the node, the next one is conclusive.
                self._nominate(pod)
            return
        self._held.pop(key, None)

    def _clear_others(self, pod: Pod, nominated: str) -> None:
        """Somebody else nominated the pod, and kube-scheduler refuses that node: it does not always clear it itself."""
        there, this = self._state.reservations.get(pod.key), (pod.key, pod.uid)
        if there is not None and there.by is By.OTHERS and nominated == there.node and this not in self._clearing:
            self._clearing.add(this)

            def wanted() -> bool:
                return self._state.reservations.get(pod.key) is there

            self._nominator.put(Write("clear", pod, "", wanted, lambda _: self._clearing.discard(this)))

    def _holder(self, pod: Pod, steered: _Steered, policy: str, nodes: Sequence[str]) -> str:
        """Whose planned node, of these, the pod may go to: its own or that of one like it; "" if it is not its turn.

        kube-scheduler's own filters let these nodes pass with all that it knows of: so before its turn, too, the pod
        may go there. Of those that wait for a wave the first changes places.
        """
        own, phase = pod.key, steered.phase
        if phase is Phase.LET_THROUGH or (phase is not Phase.QUEUED and steered.node in nodes):
            return own
        if not _like_others(pod):
            return own if phase is not Phase.QUEUED else ""
        pool = self._line if phase is Phase.IN_LINE else self._queue
        alike = pool.alike(own) or (Alike(pod.pod_class, pod.kind, policy) if phase is Phase.NOMINATED else None)
        found = () if alike is None else pool.partners(alike, nodes)
        partner = min(found, key=lambda key: self._steered[key].turn, default="")
        return partner if partner or phase is Phase.QUEUED else own

    def _swap(self, key: str, other: str) -> None:
        """Two pods that are alike change places, and if both wait for their wave, turns: those go with the nodes."""
        steered, its = self._steered[key], self._steered[other]
        steered.node, its.node = its.node, steered.node
        self._state.swap(key, other)
        for pool in (self._line, self._queue):
            pool.move(key, steered.node)
            pool.move(other, its.node)
        if steered.phase is Phase.QUEUED:
            steered.turn, its.turn = its.turn, steered.turn
            self._turns.swap(key, other)

    def _advance(self) -> None:
        """Nominates pods in line: those that stand there for too long, and while kube-scheduler is idle the newest."""
        now = self._clock()
        late = takewhile(lambda key: now - self._steered[key].since > _IN_LINE, self._line.oldest())
        due = list(islice(late, _AT_ONCE)) or ([] if self._meets() else self._line.newest(_AT_ONCE))
        for key in due:
            self._nominate(self._state.pods[key])

    def _pod(self, asked: Asked) -> Pod | None:
        """The pod as our watch shows it; None unless it is there by this name and UID, and pending."""
        pod = self._state.pods.get(asked.key)
        known = pod is not None and pod.uid == asked.uid and asked.key in self._state.waiting
        return pod if known and asked.namespace in self._state.namespaces else None

    def _unknown(self, asked: Asked) -> Guidance:
        """No node passes, and nothing is remembered: a request alone proves no pod.

        Nobody is evicted for it where a policy would govern it, or may.
        """
        namespace = self._state.namespaces.get(asked.namespace)
        if namespace is None:
            return Guidance(known=False, managed=True)
        policy = self._policies.of_unknown(asked, namespace)
        return Guidance(known=False, managed=policy is not None and policy.delivery is not Delivery.OBSERVE)

    def _meets(self) -> bool:
        """Whether kube-scheduler is at work, and mostly asks about nodes that are planned for pods in line.

        Then each write that is put off may be one that is never needed.
        """
        return self._clock() - self._asked < _AT_WORK and self._meetings > _MOSTLY

    # --- on its own ---

    async def run(self) -> None:
        """Looks after what is under way until cancelled."""
        while True:
            await asyncio.sleep(_TICK)
            self.look_after()

    def look_after(self) -> None:
        """What is due now: doubtful nominations, the next wave, changed policies; every few seconds all the rest."""
        now = self._clock()
        for key in [key for key, due in self._doubtful.items() if due <= now]:
            del self._doubtful[key]
            self._look(key)
        self._wake_unseen(now)
        self._advance()
        self._turns.late(now, self._asked)
        self._begin()
        if self._heeded is not self._policies.ordered:
            self._heeded = self._policies.ordered
            self._give_up_unsteered()
            self._wake_unsteered()
        if now - self._settled >= _SETTLE_EVERY:
            self._settled = now
            self._state.beside.settle(now)
            self._meetings += _MEETING_WEIGHT * (1.0 - self._meetings)  # it is worth another try now and then
            self._expire(now)
            self._held = {key: held for key, held in self._held.items() if key in self._state.waiting}
            self._free = {key: value for key, value in self._free.items() if key in self._state.waiting}
            if self._scores:
                waiting = {pod.pod_class for pod in self._state.waiting.values()}
                self._scores = {key: scores for key, scores in self._scores.items() if key[0] in waiting}

    def _doubt(self, key: str, grace: float) -> None:
        due = self._clock() + grace
        self._doubtful[key] = min(due, self._doubtful.get(key, due))

    def _look(self, key: str) -> None:
        """A nomination was erased, or kube-scheduler refuses its node."""
        steered, pod = self._steered.get(key), self._state.pods.get(key)
        if steered is None or pod is None or steered.uid != pod.uid:
            return
        if steered.phase in (Phase.QUEUED, Phase.IN_LINE):
            return
        if steered.refused or steered.expired:
            if pod.nominated == steered.node:
                self._take_back(pod, steered)  # the next round may have another node for it
            else:
                self._reject(key, "rejected" if steered.refused else "expired")
        elif pod.nominated == steered.node or steered.writing:
            return  # an older nomination for the same node left the same annotation: what is on its way is not lost
        elif self._was_ignorant(pod, steered) and steered.rewrites < _REWRITES:
            self._metrics.steered.labels("erased").inc()
            steered.rewrites += 1
            self._nominate(pod)
        else:
            self._reject(key, "rejected")

    def _was_ignorant(self, pod: Pod, steered: _Steered) -> bool:
        """Whether an attempt was held that did not know of the nomination: what it writes when it ends erases it.

        Beside that it writes why the pod was not placed. Other words than ours are those of its own filters.
        """
        held = self._held.get(pod.key)
        return UNSEEN in pod.told or (
            held is not None
            and HELD in pod.told
            and held.uid == steered.uid
            and held.nominated != steered.node
            and held.when > steered.since - _ATTEMPT_SECONDS
        )

    def _forgotten(self, key: str) -> _Steered:
        """A pod is steered no more. Where others wait for it behind their gates, the whole unit is planned anew."""
        steered = self._steered.pop(key)
        self._doubtful.pop(key, None)
        self._line.remove(key)
        self._queue.remove(key)
        for other in self._companies.lost(steered.company, key):
            its = self._steered.get(other)
            if its is not None and its.phase is Phase.QUEUED:
                self._reject(other, "expired")
            elif its is not None and not its.expired:
                if its.company is not None:
                    self._companies.withdraw(its.company, other)
                self._take_back(self._state.pods[other], its)
        return steered

    def _reject(self, key: str, outcome: str) -> None:
        steered = self._forgotten(key)
        self._metrics.steered.labels(outcome).inc()
        pod = self._state.pods.get(key)
        self._state.release(key, steered.uid)
        if pod is not None and outcome == "rejected":
            _log.info("nomination refused", pod=key, node=steered.node, told=pod.told)
            self.on_rejected(pod, steered.node)
        self._through(key)

    def _expire(self, now: float) -> None:
        for key, steered in list(self._steered.items()):
            pod = self._state.pods.get(key)
            if pod is None or steered.phase is Phase.QUEUED or steered.expired:
                continue
            patience = _PROVISIONED_SECONDS if pod.unbindable else _FOLLOWED_SECONDS
            # Let through, it may be on its way in spite of all that.
            still = steered.phase is Phase.NOMINATED and now - steered.since > _OVERDUE
            if steered.phase is Phase.IN_LINE:
                if not self._state.holds(key):
                    self._reject(key, "expired")
            elif now - steered.since > patience or (still and not self._state.holds(key)):
                self._take_back(pod, steered)
            elif still and pod.nominated != steered.node:
                # Whatever became of it: mostly two nominations of one pod that came in another order than they went.
                self._doubt(key, 0.0)

    def _take_back(self, pod: Pod, steered: _Steered) -> None:
        """Clears the nomination; the reservation goes once that is seen."""
        steered.expired = True
        self._state.ending.add(pod.key)
        if steered.clearing:
            return
        steered.clearing = True

        def done(_problem: str | None) -> None:
            steered.clearing = False
            # Where there was nothing to clear, nothing will be seen to change.
            if self._steered.get(pod.key) is steered:
                self._doubt(pod.key, _BINDING_GRACE)

        self._nominator.put(Write("clear", pod, wanted=lambda: self._steered.get(pod.key) is steered, done=done))

    def _nominate(self, pod: Pod) -> None:
        steered = self._steered[pod.key]
        self._line.remove(pod.key)
        self._queue.remove(pod.key)
        steered.phase, steered.since, steered.writing = Phase.NOMINATED, self._clock(), True
        steered.writes += 1
        number, node = steered.writes, steered.node

        def wanted() -> bool:
            # Let through already: kube-scheduler came upon the node by itself, and this is a write less.
            current = self._steered.get(pod.key) is steered and steered.phase is Phase.NOMINATED
            return current and number == steered.writes and not steered.refused and not steered.expired

        def done(problem: str | None) -> None:
            if number != steered.writes:
                return
            steered.writing = False
            if problem and wanted():
                _log.info("not nominated", pod=pod.key, node=steered.node, problem=problem)
                # The API server does not judge the node: another one would be refused too.
                self._reject(pod.key, "refused")
                self.on_refused(pod, f"the API server refused to nominate node {steered.node} for it: {problem}")
            elif problem == "":
                self._written(pod, steered)

        self._nominator.put(Write("nominate", pod, node, wanted, done))

    def _queued(self, pod: Pod) -> bool:
        steered = self._steered.get(pod.key)
        return steered is not None and steered.uid == pod.uid and steered.phase is Phase.QUEUED

    def _through(self, key: str) -> None:
        """Nobody waits for this pod any more."""
        self._turns.through(key)
        self._begin()

    def _begin(self) -> None:
        """Nominates those whose turn has come."""
        for pod in self._turns.begin(self._clock()):
            self._nominate(pod)

    def _written(self, pod: Pod, steered: _Steered) -> None:
        """Its nomination is there: its gate may open, or those of all its company if it was the last."""
        if self._steered.get(pod.key) is not steered or steered.expired:
            return
        self._let_go(self._companies.nominated(steered.company, pod))

    def _let_go(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            if pod.gated:
                self.open(pod)

    def _wake(self, pod: Pod) -> None:
        held = self._held.pop(pod.key, None)
        if held is not None and held.uid == pod.uid:
            self._nominator.put(Write("wake", pod, wanted=lambda: pod.key in self._state.waiting))

    def _wake_unseen(self, now: float) -> None:
        """Pods that sleep in kube-scheduler because our watch was late: by now it shows them.

        Mostly kube-scheduler has asked again already: its own status write queues the pod once more.
        """
        for key in [key for key, (due, _) in self._unseen.items() if due <= now]:
            _, pause = self._unseen.pop(key)
            pod = self._state.waiting.get(key)
            if pod is None or UNSEEN not in pod.told:
                continue
            longer = min(2 * pause, _UNSEEN_LONGEST)
            self._unseen[key] = now + longer, longer
            self._nominator.put(Write("wake", pod, wanted=lambda key=key: key in self._unseen))  # type: ignore[misc]

    def _give_up_unsteered(self) -> None:
        """The policies changed: what they do not steer any more is not to be nominated."""
        for key, steered in list(self._steered.items()):
            pod = self._state.pods.get(key)
            if self._steered.get(key) is not steered:
                continue  # given up with one before it
            if pod is None or pod.uid != steered.uid or steered.phase is Phase.LET_THROUGH:
                continue
            policy = self._policies.of(pod, self._state.namespaces)
            if policy is not None and policy.delivery is Delivery.EXTENDER:
                continue
            if steered.phase in (Phase.QUEUED, Phase.IN_LINE):
                self._reject(key, "expired")
            elif policy is not None:
                self._take_back(pod, steered)

    def _wake_unsteered(self) -> None:
        """The policies changed: pods that they do not hold any more must hear of it."""
        for key, held in list(self._held.items()):
            pod = self._state.waiting.get(key)
            if pod is None or pod.uid != held.uid:
                continue
            policy = self._policies.of(pod, self._state.namespaces)
            if policy is None or policy.delivery is Delivery.OBSERVE or policy.steering is Steering.PREFER:
                self._wake(pod)


def _tradable(planned: Planned) -> bool:
    """Whether another pod of the same class and kind may take its place: it is of no unit and stands for itself."""
    return not planned.unit and _like_others(planned.pod)


def _like_others(pod: Pod) -> bool:
    """Whether a plan could take another pod of its class and kind for it: not if it has a gang, or a place to take."""
    return pod.gang is None and not pod.replaces
