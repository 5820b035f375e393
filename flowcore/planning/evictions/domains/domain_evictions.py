"""Places an atomic group whose gangs keep to domains, such as a block and racks within it; running pods leave for it.

Gangs choose in the same order as where nobody leaves (``by_turns``). The pods of the last gang to choose for them
are placed at once, with their victims, so that the next slice sees what is left. Where a slice finds nothing, the one
before it chooses again. Of the plans that are tried the one stays whose victims count least; without one nobody leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flowcore.cluster.arrays.snapshot import Bools
from flowcore.model.gangs import Gang
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.evictions.domains.domain_ranks import DomainRanks
from flowcore.planning.evictions.search.exact import ChoosingGang
from flowcore.planning.evictions.search.search import Search
from flowcore.planning.evictions.waiting import Waiting
from flowcore.planning.methods.domain_tries import DomainTries
from flowcore.planning.plan_key import PlanKey
from flowcore.planning.problem.placements.decisions import Decisions
from flowcore.planning.problem.placements.domain_room import Members, by_turns
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem

#: Domains that are tried for a gang, and choices within one domain of the widest gang beside one for each gang.
_MOST_DOMAINS, _TRIES_WITHIN = 8, 32
#: Gangs that choose a domain, each with its pods, in the order of their turns.
_ChoosingGangs = Sequence[tuple[Gang, Members]]


@dataclass(frozen=True, slots=True)
class _GroupPlacement:
    """A way to place the group.

    Attributes:
        nodes: demand -> bool[N], nodes that its pods keep to; a demand of no gang with a domain is left out.
    """

    key: PlanKey
    decisions: Decisions
    nodes: Mapping[int, Bools]


def place_in_domains(
    problem: Problem,
    state: Plan,
    search: Search,
    tries: DomainTries,
    waiting: Waiting,
    *,
    preempts: bool,
) -> None:
    """Places all pods of a waiting group, or changes nothing.

    Args:
        tries: those of the round.
        preempts: whether pods may be evicted for it; if not, pods are only moved.
    """
    start, gangs, group = state.checkpoint(), _turns(problem, state, waiting), waiting.group
    plan: _GroupPlacement | None = None
    whole = _as_one(gangs, waiting)

    def search_for(chosen_gangs: _ChoosingGangs, most: int) -> _GroupPlacement | None:
        this = _DomainEvictions(problem, state, search, tries, waiting, chosen_gangs, preempts=preempts)
        best = this.best(most, tries.for_better(group))
        # A plan has one try for each gang at least.
        tries.use(group, this.tries_to_find - (len(chosen_gangs) if best else 0))
        tries.use_for_better(group, this.tries_for_better)
        return best

    if (whole is None or len(gangs) > 1) and (most := tries.begin(group)):
        # One domain that does for all of them is looked for with the other half.
        plan = search_for(gangs, most if whole is None else most - most // 2)
    if plan is None and whole is not None and (most := tries.begin(group)):
        plan = search_for([whole], most)
    if plan is None:
        return
    state.redo(plan.decisions)
    if preempts:
        demands = [(demand, pods, plan.nodes.get(demand)) for demand, pods in waiting.demands]
        choices = [
            ChoosingGang(frozenset(members), problem.domains(gang.topology_key).codes) for gang, members in gangs
        ]
        search.improve_group(start, group, demands, choices, problem.snapshot.generation)


def _turns(problem: Problem, state: Plan, waiting: Waiting) -> _ChoosingGangs:
    """Gangs that choose and need pods."""
    group = problem.atomic_groups.all[waiting.group]
    turns = by_turns(group, {number: state.demands[number] for number in group.demands}, lambda gang: gang.needs_domain)
    waits = {demand for demand, _ in waiting.demands}
    return [(gang, members) for gang, members in turns if not waits.isdisjoint(members)]


def _as_one(gangs: _ChoosingGangs, waiting: Waiting) -> tuple[Gang, Members] | None:
    """A gang of all pods, for one domain that does for all gangs; None: a pod needs none, or topologies differ."""
    members = {number: places for _, of_gang in gangs for number, places in of_gang.items()}
    alike = len({gang.topology_key for gang, _ in gangs}) == 1
    return (gangs[0][0], members) if alike and all(demand in members for demand, _ in waiting.demands) else None


class _DomainEvictions:
    """One search, for one group.

    Attributes:
        tries_to_find: choices that were tried before there was a plan.
        tries_for_better: those after it.
    """

    def __init__(
        self,
        problem: Problem,
        state: Plan,
        search: Search,
        tries: DomainTries,
        waiting: Waiting,
        gangs: _ChoosingGangs,
        *,
        preempts: bool,
    ) -> None:
        self._problem, self._state, self._search, self._shared = problem, state, search, tries
        self._preempts = preempts
        self._counts = {demand: len(pods) for demand, pods in waiting.demands}
        self._gangs = gangs
        last = {number: place for place, (_, members) in enumerate(self._gangs) for number in members}
        #: For each of them, and in the end for no gang: the pods that are placed once it has chosen.
        self._due = [
            [entry for entry in waiting.demands if last.get(entry[0], len(self._gangs)) == place]
            for place in range(len(self._gangs) + 1)
        ]
        self._ranks = DomainRanks(problem, state, search, self._counts, preempts=preempts)
        self._start = state.checkpoint()
        self._best: _GroupPlacement | None = None
        #: Demand -> bool[N], nodes that it is kept to by the gangs that have chosen.
        self._nodes: dict[int, Bools] = {}
        #: What is asked, where it is asked -> domains that were tried for a slice that asks the same.
        self._tried: dict[tuple[object, ...], set[int]] = {}
        self.tries_to_find = self.tries_for_better = 0
        self._most_to_find = self._most_for_better = self._most_within = 0

    def best(self, most: int, most_for_better: int) -> _GroupPlacement | None:
        """The best plan that was tried; None: none places all pods. The state is as it was.

        Args:
            most: tries to find a plan, beside one for each gang.
            most_for_better: tries after it.
        """
        self._most_to_find, self._most_for_better = most + len(self._gangs), most_for_better
        self._choose(0)
        self._state.roll_back(self._start)
        return self._best

    def _choose(self, place: int) -> None:
        """Lets one gang after the other choose, in all ways for which there are tries."""
        if place == len(self._gangs):
            if self._place_due(place):
                self._keep_if_better()
            return
        gang, members = self._gangs[place]
        domains, inside = self._problem.domains(gang.topology_key), self._gangs[place + 1 :]
        tried = self._tried.setdefault(self._kind(place), set())
        added = []
        best_first = self._ranks.best_first(gang, members, inside, self._nodes)
        if len(self._gangs) == 1:
            best_first = self._shared.some_of(best_first, self._most_to_find)
        for rank, code in enumerate(best_first):
            if rank >= _MOST_DOMAINS and (len(self._gangs) > 1 or self._best is not None):
                break
            if place == 0:
                # Slices that are alike fail alike: then the widest gang chooses again, not the slice before.
                self._most_within = self._tries + _TRIES_WITHIN + len(self._gangs)
            if not self._may_try() or self._is_free():
                break
            if code in tried:
                continue
            if self._best is None:
                self.tries_to_find += 1
            else:
                self.tries_for_better += 1
            checkpoint, before = self._state.checkpoint(), dict(self._nodes)
            chosen = domains.codes == code
            for number in members:
                self._nodes[number] = self._nodes[number] & chosen if number in self._nodes else chosen
            if self._place_due(place) and self._may_be_better():
                self._choose(place + 1)
            self._state.roll_back(checkpoint)
            self._nodes = before
            if self._may_try():
                # All ways with a slice like this one here are known: the next one need not try them.
                tried.add(code)
                added.append(code)
        tried.difference_update(added)

    @property
    def _tries(self) -> int:
        return self.tries_to_find + self.tries_for_better

    def _may_try(self) -> bool:
        if self._tries >= self._most_within:
            return False
        if self._best is None:
            return self.tries_to_find < self._most_to_find
        return self.tries_for_better < self._most_for_better

    def _kind(self, place: int) -> tuple[object, ...]:
        """The same for gangs that may change places."""
        gang, members = self._gangs[place]
        if any(not members.keys().isdisjoint(others) for _, others in self._gangs[place + 1 :]):
            return (gang.name,)
        asked = []
        for number in members.keys() & self._counts.keys():
            demand, check = self._state.demands[number], self._search.fit_check(number)
            # Where more than amounts decides, pods that ask for the same may be let in elsewhere.
            own = number if not check.by_node else -1
            nodes = self._nodes.get(number, demand.allowed) & demand.allowed
            priority = demand.group.pod_class.priority
            asked.append((own, demand.requests.tobytes(), self._counts[number], priority, nodes.tobytes()))
        return (gang.topology_key, *sorted(asked))

    def _place_due(self, place: int) -> bool:
        """Places the pods that wait for nobody else to choose. Whether all of them got a node."""
        return all(
            self._search.place_all(number, pods, preempts=self._preempts, nodes=self._nodes.get(number)) == len(pods)
            for number, pods in self._due[place]
        )

    # --- what plans are compared by ---

    def _key(self) -> PlanKey:
        leaving = list(self._state.leaving.items())[self._start.leaving :]
        evicted = [resident for resident, left in leaving if left.kind is not EvictionKind.MIGRATION]
        return PlanKey(victims=self._search.loss_of(evicted, self._counts), moves=len(leaving) - len(evicted))

    def _may_be_better(self) -> bool:
        """Whether a plan with all that is decided may be better than the best: with more victims no key is less."""
        return self._best is None or self._key() < self._best.key

    def _is_free(self) -> bool:
        """Whether nobody leaves for the best plan."""
        return self._best is not None and not (self._best.key.victims.number or self._best.key.moves)

    def _keep_if_better(self) -> None:
        key = self._key()
        if self._best is None or key < self._best.key:
            self._best = _GroupPlacement(key, self._state.since(self._start), dict(self._nodes))
