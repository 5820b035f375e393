"""The search: waiting pods that found no node get one by moves, or else by victims, the most important pods first.

Each step takes the node where a demand's next pods cost least by kube-scheduler's own order of victims. Several pods of
a demand share victims: what counts is the victims for each pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, PendingPod
from flowcore.model.policies import VictimOrder
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.evictions.eligibility import Eligibility
from flowcore.planning.evictions.fit_checks import FilteredFit, FitCheck, LimitFit, ResourceFit, is_plain
from flowcore.planning.evictions.moves.movers import Movers
from flowcore.planning.evictions.patterns import PatternSearch
from flowcore.planning.evictions.program import ChoosingGang, Coming, decide_again
from flowcore.planning.evictions.search.ladders import BoundsOfDemand, Ladders
from flowcore.planning.evictions.search.node_search import NodeSearch
from flowcore.planning.evictions.search.reclaims import ReclaimEligibility
from flowcore.planning.evictions.search.victims import Victims, choose_victims
from flowcore.planning.plan_key import Loss
from flowcore.planning.problem.placements.decisions import Checkpoint
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.placements.residents import loss_of
from flowcore.rules.filters.node_resources_fit import count_fitting
from flowcore.rules.verdicts import VerdictCache

#: Sets of pods whose moves are really tried for one pod.
_MOST_SETS = 64
#: Priorities of which it is remembered what is free once all have left that may: as much memory each as the nodes.
_MOST_EMPTIED = 8
#: Residents, the least important ones, of which those are chosen first that leave for the limit of a queue.
_LEAST_CHOICE = 32
#: Where it does not matter which node it is.
_ANY_NODE = -1


class Search:
    """Changes the state; what it decides can be rolled back.

    Attributes:
        eligibility: who may be preempted.
    """

    def __init__(
        self,
        state: Plan,
        cache: VerdictCache,
        movers: Movers,
        lost_work: Callable[[], Int64s],
        reclaims: ReclaimEligibility | None = None,
    ) -> None:
        """Begins a search.

        Args:
            lost_work: gives int64[V], what is lost when a resident leaves; asked where a policy counts that.
            reclaims: None: there are no queues.
        """
        self._state, self._cache, self._movers = state, cache, movers
        self.eligibility, self._reclaims, self._lost_work = Eligibility(state), reclaims, lost_work
        self._ladders = Ladders(state.residents)
        self._fit_checks: dict[tuple[int, int], FitCheck] = {}
        #: By priority, and whether pods are evicted: what ``emptied`` said after so many changes.
        self._emptied: dict[tuple[int, bool], Int64s] = {}
        self._emptied_at = -1

    def place_all(
        self,
        demand: int,
        pods: Sequence[PendingPod],
        *,
        preempts: bool,
        nodes: Bools | None = None,
    ) -> int:
        """Places as many of these pods of a demand as possible, in their order; returns how many.

        Args:
            preempts: whether pods may be evicted for them; if not, pods are only moved.
            nodes: bool[N], nodes to choose from; None: all.
        """
        lost_work = self._counted_work(demand) if preempts else None
        this = NodeSearch(self._state, demand, self.fit_check(demand), self._ladders, nodes, lost_work)
        placed = 0
        while placed < len(pods):
            took = self._place_next(this, pods[placed:], preempts=preempts)
            if not took:
                break
            placed += took
        return placed

    def may_leave(self, priority: int, *, preempts: bool) -> Bools:
        """bool[V]: residents that may leave for a pod of a priority, but for budgets, gangs and limits of moves.

        Args:
            preempts: whether pods may be evicted for it; if not, pods are only moved.
        """
        may_leave = self._movers.let_go(priority)
        if preempts:
            may_leave |= self.eligibility.mask(priority)
            if self._reclaims is not None:
                may_leave |= self._reclaims.reclaimable
                may_leave[list(self._state.leaving)] = False
        return may_leave

    def emptied(self, priority: int, *, preempts: bool) -> Int64s:
        """int64[N, R]: what is free once all have left that may leave for a pod of a priority. Not to be written to.

        Args:
            preempts: see ``may_leave``.
        """
        state, residents = self._state, self._state.residents
        if self._emptied_at != state.changes:
            self._emptied, self._emptied_at = {}, state.changes
        if (priority, preempts) not in self._emptied:
            if len(self._emptied) == _MOST_EMPTIED:
                self._emptied = {}
            leavers = np.nonzero(self.may_leave(priority, preempts=preempts))[0]
            free = state.free.copy()
            np.add.at(free, residents.nodes[leavers], residents.usage[leavers])
            self._emptied[priority, preempts] = free
        return self._emptied[priority, preempts]

    def bounds_of(self, demand: int) -> BoundsOfDemand:
        """What must leave at least for a pod of a demand, on all nodes."""
        requests = self._state.demands[demand].requests
        return BoundsOfDemand(self._state, self._ladders, requests, self._counted_work(demand))

    def loss_of(self, members: Sequence[int], demands: Iterable[int]) -> Loss:
        """What it is to lose these victims, where they leave for pods of these demands."""
        lost_work = self._lost_work() if any(map(self._counts_lost_work, demands)) else None
        return loss_of(self._state.residents, members, lost_work=lost_work)

    def _counted_work(self, demand: int) -> Int64s | None:
        """int64[V]: what is lost when a resident leaves for a pod of a demand; None: its policy does not count that."""
        return self._lost_work() if self._counts_lost_work(demand) else None

    def _counts_lost_work(self, demand: int) -> bool:
        return self._state.demands[demand].policy.preemption.victims is VictimOrder.LEAST_LOST_WORK

    def fill(self, demand: int, pods: Sequence[PendingPod]) -> int:
        """Places as many of these pods of a demand as fit with nobody else leaving; returns how many."""
        this = NodeSearch(self._state, demand, self.fit_check(demand), self._ladders, None)
        for placed, pod in enumerate(pods):
            node = this.with_room()
            if node < 0:
                return placed
            self._state.arrive(pod, demand, node)
            this.changed({node})
        return len(pods)

    def fit_check(self, demand: int) -> FitCheck:
        """Where pods of a demand fit beside all that is decided."""
        state, this = self._state, self._state.demands[demand]
        # Waiting pods that have come may bring rules about others.
        ruled = state.ruled.total()
        check = self._fit_checks.get((demand, ruled))
        if check is None:
            everybody = state.snapshot(leavers_stay=True) if ruled else state.before
            plain = is_plain(this.group.pod_class, this.group.signature, everybody)
            check = ResourceFit(state, this) if plain else FilteredFit(state, this, self._cache)
            self._fit_checks[demand, ruled] = check
        return check

    def _place_next(self, this: NodeSearch, pods: Sequence[PendingPod], *, preempts: bool) -> int:
        """Places the first pods, on one node; how many, 0: there is no way."""
        most = this.fit_check.limits.most(len(pods))
        if not most:
            return self._place_beyond_limits(this, pods[0]) if preempts else 0
        node = this.with_room()
        if node >= 0:
            self._state.arrive(pods[0], this.number, node)
            return 1
        for eligibility, victims in self._ways(this, pods[:most], preempts=preempts):
            if self._take(this, victims, pods[: victims.count], eligibility):
                return victims.count
        return 0

    def _ways(
        self, this: NodeSearch, pods: Sequence[PendingPod], *, preempts: bool
    ) -> Iterator[tuple[Eligibility, Victims]]:
        """Who may leave for the first pods, the best first: those that are moved, then victims."""
        if self._movers.begin(pods[0]):
            for _ in range(_MOST_SETS):
                victims = this.moving.best(self._movers, 1)
                if victims is None:
                    break
                yield self._movers, victims
                this.moving.changed({victims.node})
        if preempts and (victims := this.best(self.eligibility, len(pods))) is not None:
            yield self.eligibility, victims
        elif preempts and self._reclaims is not None:
            victims = self._reclaims.best(this, pods[0])
            if victims is not None:
                yield self._reclaims, victims

    def _take(self, this: NodeSearch, victims: Victims, pods: Sequence[PendingPod], eligibility: Eligibility) -> bool:
        """Some leave, and pods come to their node. Returns whether they do."""
        before = len(self._state.leaving)
        if not eligibility.decide(victims.members, pods, this.number, victims.node):
            return False
        to = {leaving.to for leaving in list(self._state.leaving.values())[before:]} - {-1}
        this.changed({victims.node, *to, *self._nodes_of(victims.members)})
        return True

    # --- limits of queues ---

    def _place_beyond_limits(self, this: NodeSearch, pod: PendingPod) -> int:
        """Others that count for the limits which keep a pod out leave for it, and it gets a node; 1, or 0: no way.

        Either they leave one node, where no node has room and that makes the room for the pod, too. Or they leave
        wherever they are, and the pod gets a node as any other one does then.
        """
        state, limits = self._state, this.fit_check.limits
        lacking, nodes = self._below(limits.lacking()), np.zeros(len(state.free), dtype=np.bool_)
        if not len(this.nodes_with_room):
            nodes[state.residents.nodes[self._below(limits.rows)]] = True
        beyond = this.beyond_limits(nodes) if nodes.any() else None
        for eligibility in (self.eligibility, self._reclaims):
            if eligibility is None or not eligibility.begin(pod):
                continue
            concerned = lacking & eligibility.mask(this.priority)
            if not concerned.any():
                continue
            if beyond is None:
                on_a_node = None
            elif isinstance(eligibility, ReclaimEligibility):
                on_a_node = eligibility.best(beyond, pod)
            else:
                on_a_node = beyond.best(eligibility, 1)
            if on_a_node is not None:
                this.changed({on_a_node.node})
            checkpoint = state.checkpoint()
            if self._place_after(this, pod, eligibility, concerned):
                left = [each for each, why in state.since(checkpoint).leaving if why.kind is not EvictionKind.MIGRATION]
                if on_a_node is None or self.loss_of(left, [this.number]) < on_a_node.loss:
                    return 1
                state.roll_back(checkpoint)
                this.changed(self._nodes_of(left))
            if on_a_node is not None:
                return int(self._take(this, on_a_node, [pod], eligibility))
        return 0

    def _place_after(self, this: NodeSearch, pod: PendingPod, eligibility: Eligibility, concerned: Bools) -> bool:
        """Victims leave so that the limits let a pod in, and it gets a node. Whether it has one."""
        state, residents = self._state, self._state.residents
        fit = LimitFit(state, state.demands[this.number])
        most_important_first: list[int] = self._by_importance[concerned[self._by_importance]].tolist()
        # As few of the least important ones as do, and some more: one large pod may do for several small ones.
        number = _LEAST_CHOICE
        while True:
            choices = eligibility.evictions(most_important_first[-number:], this.priority)
            victims = choose_victims(residents, fit, _ANY_NODE, choices, lost_work=self._counted_work(this.number))
            if victims is not None or number >= len(most_important_first):
                break
            number *= 2
        if victims is None:
            return False
        checkpoint = state.checkpoint()
        for resident in victims.members:
            state.let_leave(resident, eligibility.kind, [pod.key])
        nodes = self._nodes_of(victims.members)
        this.changed(nodes)
        if this.fit_check.limits.allow() and self._place_next(this, [pod], preempts=True):
            return True
        state.roll_back(checkpoint)
        this.changed(nodes)
        return False

    def _below(self, rows: Int64s) -> Bools:
        """bool[V]: residents that count for one of some limits of queues."""
        names, numbers = self._queues
        return self._state.limits.below(rows, names)[numbers]

    @cached_property
    def _queues(self) -> tuple[list[str], Int64s]:
        """The queues of residents, and int64[V], the number of each one's queue."""
        known: dict[str, int] = {}
        numbers = [known.setdefault(pod.queue, len(known)) for pod in self._state.residents.pods]
        return list(known), np.array(numbers, dtype=np.int64)

    @cached_property
    def _by_importance(self) -> Int64s:
        """int64[V]: numbers of all residents, the most important first."""
        residents = self._state.residents
        order: Int64s = np.lexsort((np.where(residents.started == 0, np.inf, residents.started), -residents.priorities))
        return order

    def _nodes_of(self, members: Sequence[int]) -> set[int]:
        """The nodes of residents, and of the gangs that they belong to."""
        residents = self._state.residents
        gangs = {residents.pods[member].gang for member in members} - {""}
        others = (resident for name in gangs for resident in residents.by_gang[name])
        return {int(residents.nodes[resident]) for resident in (*members, *others)}

    def decide_again(
        self,
        checkpoint: Checkpoint,
        coming: Sequence[Coming],
        gangs: Sequence[ChoosingGang],
        let_lower_wait: Callable[..., None],
        holds: Callable[[], bool],
        seed: int,
    ) -> None:
        """Decides again what was decided since a checkpoint, by an integer program, where that may bring something.

        Args:
            coming: all pods that have come since, or wait, and placements that may change.
            gangs: those that choose a domain.
            let_lower_wait: as the function of the program says.
            holds: whether every filter passes for all that comes.
            seed: of the integer program.
        """
        state, pods = self._state, sum(len(each.pods) for each in coming)
        highest = max((each.priority for each in coming if each.preempts), default=-(2**31))
        may_gain = self._movers.any or (
            self._movers.destinations.may_fit(self.eligibility.mask(highest)).any()
            if pods == 1
            else state.changed or any(each.residents for each in coming) or self._any_group_may_fit(coming)
        )
        if coming and may_gain and not any(self._counts_lost_work(each.demand) for each in coming):
            self._within_limits(
                checkpoint,
                lambda: decide_again(
                    state,
                    self.eligibility,
                    self._movers,
                    checkpoint,
                    coming,
                    gangs,
                    self.fit_check,
                    self._node_order,
                    lambda: self.find_replacements(holds),
                    let_lower_wait,
                    holds,
                    seed,
                ),
            )

    def _any_group_may_fit(self, coming: Sequence[Coming]) -> bool:
        """Whether an atomic group has a place for each of its pods once all have left that may leave for them."""
        state, groups = self._state, {alike.group for alike in coming} - {-1}
        for alike in coming:
            if alike.group in groups:
                room = self.emptied(alike.priority, preempts=alike.preempts)[self.fit_check(alike.demand).possible]
                if count_fitting(state.demands[alike.demand].requests, room).sum() < len(alike.pods):
                    groups.discard(alike.group)
        return bool(groups)

    def _node_order(self, demand: int, may_leave: Bools) -> Int64s:
        return NodeSearch(self._state, demand, self.fit_check(demand), self._ladders, None).bounds(may_leave).nodes

    def decide_together(self, checkpoint: Checkpoint, priority: int) -> None:
        """Decides again what was decided since a checkpoint, for pods of one priority, where fewer leave then.

        Only pods that preempt may have come since, and only victims of preemptions may have left.
        """
        self._within_limits(checkpoint, lambda: self._patterns.improve(checkpoint, priority))

    def _within_limits(self, checkpoint: Checkpoint, improve: Callable[[], object]) -> None:
        """Decides again what was decided since a checkpoint; where that passes the limit of a queue, it stays."""
        if not self._state.limits.names:
            improve()
            return
        decisions = self._state.since(checkpoint)
        improve()
        if any(not self.fit_check(arrival.demand).limits.allow(count=0) for arrival in self._state.arrivals):
            self._state.roll_back(checkpoint)
            self._state.redo(decisions)

    @cached_property
    def _patterns(self) -> PatternSearch:
        def place(demand: int, pods: Sequence[PendingPod]) -> int:
            return self.place_all(demand, pods, preempts=True)

        return PatternSearch(self._state, self.eligibility, self.fit_check, self._node_order, place)

    def find_replacements(self, holds: Callable[[], bool]) -> None:
        """Gives preempted pods that a controller replaces a node, as far as there is room.

        Where a policy may move such a pod it is a move.

        Args:
            holds: whether every filter still passes for the whole plan.
        """
        state, residents = self._state, self._state.residents
        for resident, leaving in sorted(state.leaving.items(), key=lambda entry: -residents.pods[entry[0]].priority):
            if leaving.to >= 0 or not self._movers.is_made_again(resident):
                continue
            is_move = leaving.kind is EvictionKind.PREEMPTION and self._movers.may_go_instead(resident)
            checkpoint = state.checkpoint()
            if not (self._movers.destinations.reserve(resident, is_move=is_move) and holds()):
                state.roll_back(checkpoint)
