"""The second part of a round: running pods leave for those that the first part found no node for."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from operator import attrgetter

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, PendingPod, Snapshot
from flowcore.costs.shares.limit_room import LimitRoom
from flowcore.costs.shares.reclaim import Reclaim
from flowcore.costs.shares.shares import Shares
from flowcore.model.policies import Policy, ReschedulingMode, ReschedulingReason, VictimOrder
from flowcore.model.running_pods import EvictionKind, RunningPods
from flowcore.planning.evictions.eligibility import may_preempt
from flowcore.planning.evictions.eviction_result import EvictionResult
from flowcore.planning.evictions.gain_bound import most_gained
from flowcore.planning.evictions.moves.gain_moves import GainMoves
from flowcore.planning.evictions.moves.lasting_rules import LastingRules
from flowcore.planning.evictions.moves.move_prices import move_prices
from flowcore.planning.evictions.moves.movers import Movers
from flowcore.planning.evictions.moves.rule_evictions import evict_for_rules
from flowcore.planning.evictions.order import (
    ArrivalOrder,
    first_rejected,
    order_arrivals,
    plain_demands,
)
from flowcore.planning.evictions.program import ChoosingGang, Coming
from flowcore.planning.evictions.revocation import Dependents, revocable
from flowcore.planning.evictions.room_in_domains import place_group
from flowcore.planning.evictions.search.leavers import resident_room, with_residents
from flowcore.planning.evictions.search.reclaims import ReclaimEligibility
from flowcore.planning.evictions.search.search import Search
from flowcore.planning.evictions.take_back import let_lower_wait, take_back
from flowcore.planning.evictions.waiting import (
    Waiting,
    affordable,
    may_change_places,
    restrict_to_gang_domains,
    waiting_after,
    waiting_again,
)
from flowcore.planning.methods.domain_tries import DomainTries
from flowcore.planning.methods.relaxation import RelaxedSolution
from flowcore.planning.methods.resident_bound import resident_bound
from flowcore.planning.problem.bounds.bound_notes import BoundNote
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import Arrival, Checkpoint
from flowcore.planning.problem.placements.domain_room import by_turns
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.placements.residents import Residents
from flowcore.planning.problem.problem import Problem, priced
from flowcore.planning.problem.result import Eviction, Placement, RoundResult
from flowcore.rules.filters.node_resources_fit import count_fitting

_ACT = (ReschedulingMode.ACT,)
_ACT_OR_PROPOSE = (ReschedulingMode.ACT, ReschedulingMode.PROPOSE)


def plan_evictions(
    problem: Problem, result: RoundResult, candidate: Candidate, relaxed: Sequence[RelaxedSolution] = ()
) -> RoundResult:
    """The result with evictions and the placements that they allow; the same result where no pod leaves.

    Args:
        problem: what the first part solved.
        result: of the first part.
        candidate: what the result was made from.
        relaxed: the first part in fractions, where it was solved so.
    """
    running = problem.snapshot.running
    if running is None:
        return result
    rules = LastingRules(result.after, running, problem.policies)
    if not (result.unplaced or rules.broken.any() or _moves_for_gain(problem, _ACT_OR_PROPOSE)):
        return result
    acting = _EvictionRound(problem, result, candidate, running, rules, _ACT)
    planned = acting.result()
    bounded = partial(_bounded, acting, problem, result, planned, candidate, relaxed)
    planned = problem.say("The bound of the cost", bounded, planned.bounded_by(0, ()))
    if any(policy.rescheduling.mode is ReschedulingMode.PROPOSE for policy in problem.policies.values()):

        def proposed() -> tuple[Eviction, ...]:
            modes = _ACT_OR_PROPOSE
            return _moves(_EvictionRound(problem, result, candidate, running, rules, modes).result())

        proposals: tuple[Eviction, ...] = ()
        proposals = problem.say("What policies propose", proposed, proposals)
        planned = replace(planned, proposals=proposals if proposals != _moves(planned) else ())
    return planned


def _bounded(
    acting: _EvictionRound,
    problem: Problem,
    first: RoundResult,
    planned: RoundResult,
    candidate: Candidate,
    relaxed: Sequence[RelaxedSolution],
) -> RoundResult:
    """The plan with what no plan costs less than, and what that does not count.

    Args:
        first: of the first part.
    """
    decided = candidate.decided.notes
    bound, notes = planned.lower_bound, problem.bound_notes(relaxed=bool(relaxed), decided=decided)
    if planned.evictions and planned.placements is not first.placements:
        # The bound of the first part is of plans in which nobody leaves, or for gain only and after them.
        least = candidate.decided.least_cost
        bound = least + acting.bound(candidate.decided.before, relaxed, is_short=bool(planned.unplaced))
        # Where pods wait the round in fractions is solved with the room of those that may leave.
        notes = problem.bound_notes(relaxed=bool(relaxed or planned.unplaced), decided=decided)
        notes = (BoundNote.RUNNING_PODS, *(note for note in notes if note is not BoundNote.RULES))
    gained = acting.most_gained() if planned.evictions else 0
    return planned.bounded_by(bound, (*notes, BoundNote.GAINS) if gained else notes, gained)


def _moves_for_gain(problem: Problem, modes: Sequence[ReschedulingMode]) -> bool:
    return any(policy.rescheduling.moves_for(ReschedulingReason.GAIN, modes) for policy in problem.policies.values())


def _moves(result: RoundResult) -> tuple[Eviction, ...]:
    return tuple(each for each in result.evictions if each.kind is EvictionKind.MIGRATION)


class _EvictionRound:
    """One search, with the policies of some modes moving their pods."""

    def __init__(
        self,
        problem: Problem,
        result: RoundResult,
        candidate: Candidate,
        running: RunningPods,
        rules: LastingRules,
        modes: Sequence[ReschedulingMode],
    ) -> None:
        self._problem, self._first, self._rules = problem, result, rules
        self._gains = _moves_for_gain(problem, modes)
        waiting = waiting_after(problem, result)
        restricted = restrict_to_gang_domains(problem, result)
        affordable_waiting, demands = affordable(problem, candidate, waiting, restricted)
        self._waiting = [each for each in affordable_waiting if each.beside < 0]
        groups = {each.group for each in self._waiting}
        self._optional = [each for each in affordable_waiting if each.beside in groups - {-1}]
        highest = max(map(self._highest, self._waiting), default=-(2**31))
        placed = [placement.pod.signature for placement in result.placements]
        self._dependents = Dependents(placed, result.after.pod_index.namespaces)
        taken_back = revocable(problem, result, self._dependents, highest)
        self._is_small = may_change_places(problem, result, candidate) and not rules.broken.any()
        if self._is_small:
            taken = {each.pod.key for each in taken_back}
            kept = {each.pod.key for each in result.placements} - taken
            residents = Residents.of(result.after, running, result.placements, kept)
        else:
            residents = Residents.of(result.after, running, taken_back)
        limits = LimitRoom(Shares(problem.snapshot)) if problem.snapshot.queues is not None else LimitRoom()
        limits.take(placement.pod for placement in result.placements)
        self._state = Plan(result.after, residents, demands, partial(priced, problem), limits)
        self._held = candidate.held
        if self._held is not None:
            self._state.hold(problem.demands, self._held.commits)
        #: Keys of placements that come anew, since others that they may need are taken back.
        self._anew: set[str] = set()
        of_domains = [entry.group for entry in self._waiting if entry.needs_domain]
        self._tries = DomainTries.of(problem, of_domains, len(result.after.table.nodes) + len(residents.pods))
        self._movers = Movers(self._state, problem.policies, problem.models, problem.cache, modes)
        self._reclaims = None
        if problem.snapshot.queues is not None and any(pod.queue for pod in running.pods):
            self._reclaims = ReclaimEligibility(self._state, Reclaim(problem.snapshot), result.placements)
        self._anyone = bool(self._waiting) and (
            self._movers.any or self._reclaims is not None or bool((residents.priorities < highest).any())
        )

    def result(self) -> RoundResult:
        """The first part's result, and what is decided here."""
        groups: dict[str, Waiting] = {}
        if self._rules.broken.any() or self._anyone:
            groups = self._place_waiting()
        elif not self._gains:
            return self._first
        if self._gains:
            self._move_for_gain()
        build = EvictionResult(self._problem, self._first, self._state, self._demand_of, self._anew)
        return build.result(groups, order_arrivals(self._state))

    # --- search ---

    def _place_waiting(self) -> dict[str, Waiting]:
        """Pods leave for rules and for waiting pods. Returns the group of each waiting pod of one, by the pod's key."""
        problem = self._problem
        search = Search(self._state, problem.cache, self._movers, lambda: self._lost_work, self._reclaims)
        evict_for_rules(self._state, self._movers, self._rules)
        groups: dict[str, Waiting] = {}
        checkpoint = self._place_with_held(search)
        self._problem.charge(())
        for priority, level in itertools.groupby(self._waiting, key=attrgetter("priority")):
            self._place_level(search, tuple(level), is_last=priority == self._waiting[-1].priority)
        groups |= {
            pod.key: waiting
            for waiting in (*self._waiting, *self._again(self._state.residents.placements))
            if waiting.group >= 0
            for _, pods in waiting.demands
            for pod in pods
        }
        before = list(self._state.arrivals)
        search.decide_again(
            checkpoint,
            self._coming(checkpoint),
            self._gangs_of_domains,
            partial(self._let_lower_wait, groups),
            self._passes_all,
            problem.snapshot.generation,
        )
        if self._state.arrivals != before:  # others than before have room now, or victims that are enough
            for waiting in self._waiting:
                self._place(search, waiting)
        self._settle(groups)
        for decide_more in (self._try_again, self._place_revoked, self._fill):
            changes = self._state.changes
            decide_more(search)
            if self._state.changes > changes:
                self._settle(groups)
        search.find_replacements(self._holds)
        return groups

    def _move_for_gain(self) -> None:
        """Pods leave for nodes that cost less, but for those that may take a pod which still waits."""
        state, problem = self._state, self._problem
        arrived = state.arrived
        waiting = {each.pod.key for each in self._first.unplaced} | {each.pod.key for each in self._revoked}
        kept = np.zeros(len(state.free), dtype=np.bool_)
        for demand in problem.demands:
            if any(pod.key in waiting and pod.key not in arrived for pod in demand.group.pods):
                # No node that can never hold the pod: one that nothing helps would keep all of them.
                kept |= demand.allowed & demand.could_be_held(problem.snapshot)
        placed = [placement.pod.signature for placement in self._first.placements]
        GainMoves(state, problem.policies, self._movers, placed).decide(kept, self._holds)
        problem.charge(())

    def bound(self, before: Snapshot | None, relaxed: Sequence[RelaxedSolution], *, is_short: bool) -> int:
        """A cost that no plan for the pods of the problem goes below, with evictions and moves too.

        Args:
            before: see ``Decided``.
            relaxed: see ``plan_evictions``.
            is_short: whether pods wait although others leave.
        """
        pods = self._state.residents.pods
        breaking = {pod.key for pod in itertools.compress(self._rules.pods, self._rules.may_break.tolist())}
        breaks = np.array([pod.key in breaking for pod in pods], dtype=np.bool_)
        room = resident_room(self._problem, before, self._state, self._movers, self._reclaims, breaks)
        return resident_bound(self._problem, room, relaxed, is_short=is_short)

    def most_gained(self) -> int:
        """What moves for gain gain at most in any plan beyond their prices."""
        gaining, residents = self._movers.gaining, self._state.residents
        if not self._gains or not gaining.any():
            return 0
        costs = self._movers.destinations.costs
        everybody = np.arange(residents.running_count)
        problem, after = self._problem, costs.terminating.gone_from(self._state.snapshot())
        emptied = costs.terminating.gone_from(with_residents(problem.snapshot, residents, everybody))
        kinds = costs.kinds(np.nonzero(gaining)[0], after)
        changes = self._first.placements or self._first.unplaced or self._rules.may_break.any()
        others_leave = any(not leaving.gain for leaving in self._state.leaving.values())
        around = None if changes or others_leave else (costs.terminating.gone_from(problem.snapshot), after)
        return most_gained(problem, residents, self._movers, kinds, emptied, around)

    def _place_with_held(self, search: Search) -> Checkpoint:
        """Places pods of a higher priority than the group that room is held for, then that group, on that room too.

        Where the group cannot be placed, what is left of the room stays held. Returns a checkpoint after the pods.
        """
        state, held = self._state, self._held
        group = next((each for each in self._waiting if held is not None and each.group == held.group), None)
        if held is None or group is None:
            return state.checkpoint()
        state.hold(state.demands, held.commits, -1)
        for waiting in self._waiting:
            if waiting.priority > group.priority:
                self._place(search, waiting)
        self._place_revoked(search, above=group.priority)
        checkpoint = state.checkpoint()
        self._place(search, group)
        if len(state.arrivals) > checkpoint.arrivals:
            return checkpoint
        for commit in held.commits:
            room = count_fitting(state.demands[commit.demand].requests, state.free[[commit.node]])
            state.hold(state.demands, [replace(commit, count=min(commit.count, int(room[0])))])
        return state.checkpoint()

    def _place_level(self, search: Search, level: Sequence[Waiting], *, is_last: bool) -> None:
        """Places the waiting pods of one priority.

        Args:
            is_last: there is no lower one, whose pods might need what a better choice of victims takes.
        """
        checkpoint, priority = self._state.checkpoint(), level[0].priority
        for waiting in level:
            self._place(search, waiting)
            self._problem.charge([pod for _, pods in waiting.demands for pod in pods])
        others_leave = self._movers.any or self._reclaims is not None
        is_simple = (
            is_last
            and not others_leave
            and all(
                not waiting.needs_domain
                and self._may_all_preempt(waiting)
                and all(
                    self._problem.demands[demand].group.pod_class.priority == priority
                    and self._policy(demand).preemption.victims is VictimOrder.KUBE_SCHEDULER
                    for demand, _ in waiting.demands
                )
                for waiting in self._beside_domains(level)
            )
        )
        if is_simple:
            search.decide_together(checkpoint, priority)
            self._problem.charge([pod for waiting in level for _, pods in waiting.demands for pod in pods])

    def _beside_domains(self, level: Sequence[Waiting]) -> list[Waiting]:
        """The groups of a level without those that choose a domain and found none: nothing of the plan is for these."""
        arrived = self._state.arrived
        return [each for each in level if not each.needs_domain or each.demands[0][1][0].key in arrived]

    @cached_property
    def _lost_work(self) -> Int64s:
        """int64[V]: what is lost when a resident leaves; nothing by a placement that is taken back."""
        residents, problem = self._state.residents, self._problem
        prices = move_prices(residents.pods, residents.usage, problem.policies, problem.snapshot)
        prices[residents.running_count :] = 0
        return prices

    def _place(self, search: Search, waiting: Waiting) -> None:
        """Places what waits."""
        if waiting.group < 0:
            ((demand, pods),) = waiting.demands
            policy, now = self._policy(demand), self._problem.snapshot.now
            left = self._left(waiting, pods)
            may_evict = self._any_evictable(waiting)
            preempting = [pod for pod in left if may_evict and may_preempt(pod, policy, now)]
            others = [pod for pod in left if not (may_evict and may_preempt(pod, policy, now))]
            search.place_all(demand, preempting, preempts=True)
            if others:
                search.place_all(demand, others, preempts=False)
            return
        preempts = self._any_evictable(waiting) and self._may_all_preempt(waiting)
        if not self._left(waiting, waiting.demands[0][1]):
            return
        place_group(self._problem, self._state, search, self._tries, waiting, preempts=preempts)

    def _left(self, waiting: Waiting, pods: Sequence[PendingPod]) -> list[PendingPod]:
        """Pods of what waits that have no node yet; of a gang that has none either, none beyond those that it needs."""
        arrived, absent = self._state.arrived, self._absent if waiting.group < 0 else ()
        return [pod for pod in pods if pod.key not in arrived and not (absent and self._group_of(pod) in absent)]

    def _any_evictable(self, waiting: Waiting) -> bool:
        """Whether there is anybody who could be evicted for it: by preemption, or for the share of its queue."""
        has_queue = self._reclaims is not None and any(pod.queue for _, pods in waiting.demands for pod in pods)
        return has_queue or self._least_evictable < self._highest(waiting)

    @cached_property
    def _least_evictable(self) -> int:
        """The lowest priority of a pod that may be evicted."""
        residents = self._state.residents
        return int(residents.priorities[residents.evictable].min(initial=2**31))

    def _highest(self, waiting: Waiting) -> int:
        """The highest priority of what waits: it chooses victims by that of each pod."""
        return max(self._problem.demands[demand].group.pod_class.priority for demand, _ in waiting.demands)

    def _try_again(self, search: Search) -> None:
        """Places pods that rules kept out: others have left and come since."""
        demands = {demand for waiting in self._waiting for demand, _ in waiting.demands}
        ruled = demands - plain_demands(self._state, demands)
        for waiting in self._waiting:
            if any(demand in ruled for demand, _ in waiting.demands):
                self._place(search, waiting)

    def _place_revoked(self, search: Search, above: float = -np.inf) -> None:
        """Places pods whose room goes to others somewhere else; ``above``: of a higher priority than this."""
        for waiting in self._again(self._revoked):
            if waiting.priority > above:
                self._place(search, waiting)

    @property
    def _revoked(self) -> list[Placement]:
        """Placements of the first part whose room goes to others."""
        state = self._state
        return [
            state.residents.placement(resident) for resident, leaving in state.leaving.items() if leaving.kind is None
        ]

    def _again(self, placements: Iterable[Placement]) -> list[Waiting]:
        return waiting_again(self._problem, placements, self._demand_of)

    @cached_property
    def _placed_gangs(self) -> dict[str, int]:
        """By name of each gang that may be taken back, a resident that it needs."""
        residents, first = self._state.residents, self._state.residents.running_count
        return {
            placement.atomic_group: resident
            for resident, placement in enumerate(residents.placements, start=first)
            if placement.atomic_group and not placement.optional
        }

    @property
    def _absent(self) -> set[str]:
        """Names of the gangs that wait or are taken back, and that have no nodes."""
        state, groups = self._state, self._problem.atomic_groups.all
        needed = {groups[each.group].name: each.demands[0][1][0].key for each in self._waiting if each.group >= 0}
        needed |= {
            name: state.residents.pods[resident].key
            for name, resident in self._placed_gangs.items()
            if resident in state.leaving
        }
        arrived = state.arrived if needed else set()
        return {name for name, key in needed.items() if key not in arrived}

    def _coming(self, checkpoint: Checkpoint) -> list[Coming]:
        """Pods whose nodes are decided again: those that wait or came since, and placements of a small round."""
        residents, come = self._state.residents, {each.pod.key for each in self._state.arrivals[: checkpoint.arrivals]}
        now = self._problem.snapshot.now
        alike: dict[tuple[int, int, bool], list[PendingPod]] = {}
        for waiting in self._beside_domains(self._waiting):
            for demand, pods in waiting.demands:
                for pod in pods:
                    preempts = may_preempt(pod, self._policy(demand), now)
                    if waiting.group >= 0:
                        preempts = self._may_all_preempt(waiting)
                    if pod.key not in come:
                        alike.setdefault((demand, waiting.group, preempts), []).append(pod)
        placed: dict[tuple[int, bool], list[int]] = {}
        for number, placement in enumerate(residents.placements if self._is_small else (), residents.running_count):
            demand = self._demand_of[placement.pod.key]
            placed.setdefault((demand, may_preempt(placement.pod, self._policy(demand), now)), []).append(number)
        for (demand, preempts), those in placed.items():
            alike[demand, -1 - len(alike), preempts] = [residents.placement(each).pod for each in those]
        worths = dict[str, int]()
        for demand in {demand for demand, *_ in alike}:
            this = self._problem.demands[demand]
            worths |= dict(zip((pod.key for pod in this.group.pods), this.worth.tolist(), strict=True))
        return [
            Coming(
                demand,
                tuple(pods),
                preempts,
                tuple(max(1, worths[pod.key]) for pod in pods),
                max(-1, group),
                tuple(placed.get((demand, preempts), ())) if group < -1 else (),
            )
            for (demand, group, preempts), pods in alike.items()
        ]

    @property
    def _gangs_of_domains(self) -> list[ChoosingGang]:
        """The gangs that had to choose a domain, and found one."""
        problem = self._problem
        gangs = []
        for waiting in self._beside_domains(self._waiting):
            turns = by_turns(problem.atomic_groups.all[waiting.group], problem.demands) if waiting.needs_domain else ()
            for gang, members in turns:
                if gang.needs_domain:
                    domains = problem.domains(gang.topology_key)
                    codes = np.where(domains.codes < domains.count, domains.codes, -1)
                    gangs.append(ChoosingGang(waiting.group, frozenset(members), codes))
        return gangs

    def _settle(self, groups: Mapping[str, Waiting]) -> None:
        """Nobody comes whom rules keep out after all, and nobody leaves who need not."""
        self._judge_dependents_again()
        order = self._drop_what_breaks_rules(groups)
        changes = self._state.changes
        self._let_lower_wait(groups)
        if self._state.changes > changes:
            self._judge_dependents_again()
            order = self._drop_what_breaks_rules(groups)
        if self._revoked:  # one that stays may keep out who could come at once, or who is replaced
            has_place = self._movers.destinations.has_place
            take_back(self._state, lambda: self._passes_all() and all(map(has_place, self._state.leaving)))
        else:
            take_back(self._state, lambda: first_rejected(self._state, order) is None)

    def _judge_dependents_again(self) -> None:
        """Placements that may need one that is taken back come anew where they are: so filters are asked about them."""
        state, residents = self._state, self._state.residents
        asked: set[int] = set()
        while True:
            revoked = [each for each, leaving in state.leaving.items() if leaving.kind is None and each not in asked]
            if not revoked:
                return
            asked.update(revoked)
            for resident in revoked:
                for rule in self._dependents.rules(residents.pods[resident].signature):
                    for placement in (self._first.placements[place] for place in self._dependents.by_rule[rule]):
                        for member in self._staying_with(self._resident_of[placement.pod.key]):
                            state.let_leave(member, EvictionKind.PREEMPTION, state.leaving[resident].for_pods)
                            pod = residents.placement(member).pod
                            self._anew.add(pod.key)
                            state.arrive(pod, self._demand_of[pod.key], int(residents.nodes[member]))

    def _staying_with(self, resident: int) -> list[int]:
        """A placement and those of its gang, as far as they stay."""
        residents = self._state.residents
        together = residents.by_gang.get(residents.pods[resident].gang, (resident,))
        return [member for member in together if member not in self._state.leaving]

    @cached_property
    def _resident_of(self) -> dict[str, int]:
        """Number of each placement that is a resident, by the pod's key."""
        residents = self._state.residents
        return {pod.key: number for number, pod in enumerate(residents.pods) if not residents.is_running(number)}

    def _fill(self, search: Search) -> None:
        """Places what fits into the room that is left in the end: nobody else leaves for it."""
        state = self._state
        if not state.changed:
            return
        for waiting in (*self._waiting, *self._again(self._revoked), *self._optional):
            checkpoint = state.checkpoint()
            for demand, pods in waiting.demands:
                left = self._left(waiting, pods)
                placed = search.fill(demand, left)
                if waiting.group >= 0 and (placed < len(left) or waiting.needs_domain):
                    state.roll_back(checkpoint)
                    break

    def _may_all_preempt(self, waiting: Waiting) -> bool:
        now = self._problem.snapshot.now
        return all(may_preempt(pod, self._policy(demand), now) for demand, pods in waiting.demands for pod in pods)

    def _group_of(self, pod: PendingPod) -> str:
        """The atomic group of a pod; "": it is in none."""
        return self._problem.atomic_groups.name_of(self._problem.demands, self._demand_of[pod.key], pod)

    @cached_property
    def _demand_of(self) -> dict[str, int]:
        """Number of the demand of each pending pod, by key."""
        return {pod.key: number for number, demand in enumerate(self._problem.demands) for pod in demand.group.pods}

    def _policy(self, demand: int) -> Policy:
        return self._problem.demands[demand].policy

    # --- verification ---

    def _drop_what_breaks_rules(self, groups: Mapping[str, Waiting]) -> ArrivalOrder:
        """Pods that a filter rejects after all, with the rest of their group; who left for them is taken back later.

        And pods for which others move that a filter rejects where they go: what they need near has moved since.
        """
        state = self._state
        order = order_arrivals(state)
        while True:
            arrival = first_rejected(state, order) or self._first_without_place() or self._first_without_gang()
            arrival = arrival or self._first_that_leaves()
            if arrival is None:
                return order
            state.drop_arrivals({pod.key for pod in _with_gang(groups, arrival.pod)})
            order = order_arrivals(state)

    def _first_without_place(self) -> Arrival | None:
        """The first arrival for which a pod moves that its next node rejects, as all of the plan is now; None: none."""
        state = self._state
        arrivals = {arrival.pod.key: arrival for arrival in state.arrivals}
        for resident, leaving in state.leaving.items():
            waiting = next((arrivals[key] for key in leaving.for_pods if key in arrivals), None)
            if waiting is None or leaving.kind is not EvictionKind.MIGRATION:
                continue
            if not self._movers.destinations.has_place(resident):
                return waiting
        return None

    def _first_without_gang(self) -> Arrival | None:
        """The first arrival that is nothing without its gang, which has no nodes; None: none."""
        absent = self._absent
        return next((each for each in self._state.arrivals if absent and self._group_of(each.pod) in absent), None)

    def _first_that_leaves(self) -> Arrival | None:
        """The first resize that gets its room though its pod leaves; None: none."""
        state = self._state
        gone = {state.residents.pods[each].key for each, leaving in state.leaving.items() if leaving.kind is not None}
        return next((each for each in state.arrivals if each.pod.key in gone), None)

    def _let_lower_wait(self, groups: Mapping[str, Waiting], *, anybody: bool = False) -> None:
        """Whom only pods below it evict stays, and these wait; ``anybody``: placements too that keep their nodes."""
        is_lower, let_wait = partial(self._is_lower, groups), partial(self._let_wait, groups, anybody=anybody)
        let_lower_wait(self._state, is_lower, let_wait, self._first_rejected)

    def _is_lower(self, groups: Mapping[str, Waiting], resident: int, pod: PendingPod, *, at_once: bool) -> bool:
        """Whether a resident is not preempted for a pod or its gang.

        Pods above the resident that come at once take their room before it.
        """
        priority, now = self._state.residents.pods[resident].priority, self._problem.snapshot.now
        return not any(
            each.pod_class.priority > priority
            and (at_once or may_preempt(each, self._policy(self._demand_of[each.key]), now))
            for each in _with_gang(groups, pod)
        )

    def _let_wait(
        self, groups: Mapping[str, Waiting], pod: PendingPod, for_pods: Sequence[str], *, anybody: bool
    ) -> bool:
        """Takes a pod with its gang out of the plan, for others. Whether none of these is among them."""
        state, resident = self._state, self._resident_of.get(pod.key, -1)
        if resident >= 0 and resident not in state.leaving:
            gang = self._staying_with(resident)
            if not (anybody or state.residents.evictable[gang].all()):
                return False
            for member in gang:
                state.let_leave(member, EvictionKind.PREEMPTION, for_pods)
            return True
        keys = {each.key for each in _with_gang(groups, pod)}
        state.drop_arrivals(keys)
        return keys.isdisjoint(for_pods)

    def _first_rejected(self) -> Arrival | None:
        return first_rejected(self._state, order_arrivals(self._state))

    def _passes_all(self) -> bool:
        """Whether every filter passes for all that comes, in its order."""
        return self._first_rejected() is None

    def _holds(self) -> bool:
        """Whether every filter passes for the whole plan; asked after each replacement that gets a node."""
        if all(each.pod.signature.constraints is None for each in self._state.arrivals) and not self._ruled_leavers():
            return True
        return self._passes_all()

    def _ruled_leavers(self) -> bool:
        """Whether pods that leave bring rules about others to their next node, or ports."""
        pods = self._state.residents.pods
        return any(
            pods[resident].signature.constraints is not None or pods[resident].pod_class.host_ports
            for resident, leaving in self._state.leaving.items()
            if leaving.to >= 0
        )


def _with_gang(groups: Mapping[str, Waiting], pod: PendingPod) -> list[PendingPod]:
    """A pod that comes, with all that come or wait with it; ``groups``: by the key of each such pod."""
    return [each for _, pods in groups[pod.key].demands for each in pods] if pod.key in groups else [pod]
