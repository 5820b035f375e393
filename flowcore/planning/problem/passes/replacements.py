"""Pods that take the place of running pods (their victims): decided before the rest of a round.

Source: Fleet's Replaces, figures 4 and 5 of the seed: the new pod is connected to the victim's node alone, the victim
to nothing. All filters judge the new pod in the cluster without its victim. If they agree it gets the place; if not, it
stays pending and the victim stays where it is.

The victim runs until it has terminated, which may take long, so the rest of the round gets nothing of what it frees:

- of each resource the larger request of the two counts as taken, and the host ports of both;
- for constraints of others the new pod counts as running, as every placement does, and the victim as being deleted,
  which is what kube-scheduler will see: affinity and anti-affinity count it until it is gone, spread does not.

Pods of a gang that name a victim are decided together, each in the cluster without the victims of all and with the
others in their places, and the gang needs every one of them. If one has no place, the gang waits as a whole. If all
have theirs, the gang needs so many pods less, and its other pods compete for nodes like those of any gang. Where the
plan has no nodes for these, the gang waits as a whole, too (``settle``). Its places are held while the round decides.
So they are held only for a gang whose other pods have room as the round begins, if nobody else comes: a gang that
cannot start holds no room.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, PendingPod, Snapshot, Victim
from flowcore.costs.model import Load
from flowcore.model.amount_text import as_sentence
from flowcore.model.gangs import Gang
from flowcore.model.quantities import MAX_AMOUNT
from flowcore.planning.problem.bounds.bound_notes import BoundNote
from flowcore.planning.problem.demands.atomic_groups import AtomicGroup, pods
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.passes.round_pass import Pass
from flowcore.planning.problem.placements.candidate import NOTHING_DECIDED, Candidate, Decided
from flowcore.planning.problem.placements.cluster_change import ClusterChange
from flowcore.planning.problem.problem import Problem, priced
from flowcore.planning.problem.result import Placement, RoundResult, Unplaced
from flowcore.rules.filters import run_filters
from flowcore.rules.reasons.codes import GANG_INCOMPLETE, REPLACEMENT
from flowcore.rules.reasons.kept_domains import nodes_of_domain

#: Most pods of a gang that name a victim: each is judged beside all others.
MAX_TOGETHER = 256


class _NoPlace(Exception):
    """Why a unit waits, and all of its group with it."""

    def __init__(self, text: str, code: str = REPLACEMENT, *, more_nodes_help: bool = False) -> None:
        super().__init__(text)
        self.text, self.code, self.more_nodes_help = text, code, more_nodes_help


@dataclass(frozen=True, slots=True, eq=False)
class _NewPod:
    """A pod that is to take the place of its victim.

    Attributes:
        price: what leaving it pending costs.
    """

    pod: PendingPod
    victim: Victim
    price: int
    demand: Demand

    @property
    def rank(self) -> tuple[int, float, str]:
        """The dearest pod is decided first, of equal ones the oldest."""
        return -self.price, self.pod.created, self.pod.key


@dataclass(frozen=True, slots=True, eq=False)
class _Together:
    """Pods that take their places together: those of a gang that name a victim, or one pod by itself.

    Attributes:
        new_pods: those that name a victim, by rank.
        group: the gang, or gangs that depend on each other; None: it is one pod.
        rest: the other pods of the group that wait, each with what leaving it pending costs.
    """

    new_pods: Sequence[_NewPod]
    group: AtomicGroup | None = None
    rest: Sequence[tuple[PendingPod, int]] = ()

    @property
    def rank(self) -> tuple[int, float, str]:
        """That of its first pod."""
        return self.new_pods[0].rank

    def no_place(self, pod: PendingPod, why: str) -> _NoPlace:
        """A pod of it has no place."""
        if self.group is None:
            return _NoPlace(why)
        # A constraint may have pods of several namespaces, whose authors may not know each other's pods.
        if len({each.pod.key.partition("/")[0] for each in self.new_pods}) > 1:
            return _NoPlace(f"{self.group.name} waits as a whole: a pod of it cannot take the place that it names")
        return _NoPlace(f"{self.group.name} waits as a whole: {pod.key}: {why}")


@dataclass(frozen=True, slots=True, eq=False)
class _Begun:
    """A gang with places that are held while the round decides about its other pods.

    Attributes:
        prices: by key of each pod that has a place: what leaving it costs.
        needs: by name of each of its gangs: how many other pods it needs.
    """

    prices: Mapping[str, int]
    needs: Mapping[str, int]


class PlaceReplacements(Pass):
    """Decides all pending pods that have a victim, the pod with the highest price first."""

    def __init__(
        self,
        first_left: Callable[[Problem], Unplaced | None] | None,
        by_way: Callable[[Problem], Mapping[str, Sequence[PendingPod]]],
    ) -> None:
        """What it asks.

        Args:
            first_left: a pod that a problem leaves since not all of its gangs have room. None: no gang counts.
            by_way: pods that have a choice of ways through a network, by key: each for every class of ways.
        """
        self._first_left, self._by_way = first_left, by_way
        self._decided = NOTHING_DECIDED
        self._begun: list[_Begun] = []

    def apply(self, problem: Problem) -> Problem:
        """The other pods, in a cluster in which new pods and their victims hold what they need."""
        snapshot = problem.snapshot
        pending = tuple(pod for pod in snapshot.pending if pod.victim is not None)
        if not pending:
            return problem
        others = {pod.key: pod for pod in snapshot.pending if pod.victim is None}
        alone = problem.with_snapshot(replace(snapshot, pending=pending))
        placements, unplaced, slack = list[Placement](), list[Unplaced](), 0
        taken, gangs, ways = _TakenPlaces(snapshot), dict(snapshot.gangs), _Ways(problem, self._by_way(problem))
        for unit in sorted(_units(problem, alone, gangs=self._first_left is not None), key=lambda unit: unit.rank):
            try:
                unit = ways.chosen(unit, taken)  # noqa: PLW2901 - the same with its ways
                places = _places(unit, alone, taken)
                begun = {} if unit.group is None else self._begin(unit, unit.group, problem, taken)
            except _NoPlace as why:
                text = why.text if unit.group is None else as_sentence(why.text)
                for pod, price in (*((each.pod, each.price) for each in unit.new_pods), *unit.rest):
                    others.pop(pod.key, None)
                    unplaced.append(Unplaced(ways.own(pod), text, price, why.code, why.more_nodes_help))
                continue
            placements += places
            taken.apply(unit.new_pods)
            gangs |= begun
            for pod, price, text in _late(unit, begun):
                del others[pod.key]
                unplaced.append(Unplaced(pod, text, price, REPLACEMENT, more_nodes_help=False))
            needs = {name: gang.min_placed for name, gang in begun.items() if gang.min_placed}
            if needs:
                self._begun.append(_Begun({each.pod.key: each.price for each in unit.new_pods}, needs))
                dearer = zip(places, self._begun[-1].prices.values(), strict=True)
                slack += sum(max(0, place.price - price) for place, price in dearer)
        before, notes = (snapshot, (BoundNote.DECIDED,)) if self._begun else (None, ())
        snapshot = ways.forgotten(placements, taken.with_both(tuple(others.values())))
        placed = tuple(replace(each, pod=ways.own(each.pod)) for each in placements)
        self._decided = Decided(placed, tuple(unplaced), slack, before, notes)
        return problem.with_snapshot(replace(snapshot, gangs=gangs))

    def invert(self, candidate: Candidate) -> Candidate:
        """The candidate with these pods, and what they cost."""
        return candidate.with_decided(self._decided)

    def settle(self, result: RoundResult) -> RoundResult:
        """The result once evictions are planned: pods of gangs that are not whole leave their places again."""
        for begun in self._begun:
            result = _settled(result, begun)
        return result

    def _begin(self, unit: _Together, group: AtomicGroup, problem: Problem, taken: _TakenPlaces) -> dict[str, Gang]:
        """The gangs of a unit as they are once its pods have their places.

        Raises:
            _NoPlace: its other pods have no room, or its places are in several domains.
        """
        members: dict[str, list[_NewPod]] = defaultdict(list)
        for new_pod in unit.new_pods:
            for name in dict.fromkeys(new_pod.pod.gangs):
                members[name].append(new_pod)
        begun = {
            gang.name: msgspec.structs.replace(
                gang,
                min_placed=max(0, gang.min_placed - len(members[gang.name])),
                domain=_domain(gang, members[gang.name], problem.snapshot),
                atomic_group=group.name,
            )
            for gang in group.gangs
        }
        if self._first_left is not None and any(gang.min_placed for gang in begun.values()):
            both = taken.copy()
            both.apply(unit.new_pods)
            rest = replace(both.with_both(tuple(pod for pod, _ in unit.rest)), gangs=begun)
            left = self._first_left(problem.with_snapshot(rest))
            if left is not None:
                would = f"{pods(len(unit.new_pods))} of {group.name} would take the places of running pods"
                text = f"{left.reason.removesuffix('.')}; {would}"
                raise _NoPlace(text, left.code, more_nodes_help=left.more_nodes_help)
        return begun


class _Ways:
    """Pods that have a choice of ways through a network: each takes the first that is open where its victim is.

    Once all are decided they are as before: then they count as pods that run do.
    """

    def __init__(self, problem: Problem, by_way: Mapping[str, Sequence[PendingPod]]) -> None:
        self._by_way = by_way
        self._own = {pod.key: pod for pod in problem.snapshot.pending if pod.key in by_way}
        pending = tuple(pod for of_pod in by_way.values() for pod in of_pod)
        demands = problem.with_snapshot(replace(problem.snapshot, pending=pending)).demands if by_way else ()
        self._demands = {(pod.key, pod.signature): demand for demand in demands for pod in demand.group.pods}

    def own(self, pod: PendingPod) -> PendingPod:
        """A pod as it was before."""
        return self._own.get(pod.key, pod)

    def chosen(self, unit: _Together, taken: _TakenPlaces) -> _Together:
        """A unit with the ways of its pods."""
        if not any(each.pod.key in self._by_way for each in unit.new_pods):
            return unit
        table, change, new_pods = taken.snapshot.table, None, list[_NewPod]()
        for new_pod in unit.new_pods:
            row, ways = table.index.get(new_pod.victim.node, -1), self._by_way.get(new_pod.pod.key, (new_pod.pod,))
            if row < 0:
                return unit
            change = taken.without([each.victim for each in unit.new_pods]) if change is None else change
            without = change.snapshot()
            is_open = (pod for pod in ways if run_filters(pod.pod_class, without, pod.signature).fits[row])
            pod = next(is_open, ways[0])
            change.come(pod, row, without.vector(pod.pod_class.requests))
            demand = self._demands.get((pod.key, pod.signature), new_pod.demand)
            new_pods.append(replace(new_pod, pod=pod, demand=demand))
        return replace(unit, new_pods=new_pods)

    def forgotten(self, placements: Sequence[Placement], snapshot: Snapshot) -> Snapshot:
        """A snapshot in which they count without their ways."""
        gone = [(each.node, each.pod.signature) for each in placements if each.pod.key in self._own]
        come = [(each.node, self.own(each.pod).signature) for each in placements if each.pod.key in self._own]
        return replace(snapshot, pod_index=snapshot.pod_index.with_changes(come, gone)) if gone else snapshot


def _late(unit: _Together, begun: Mapping[str, Gang]) -> Iterator[tuple[PendingPod, int, str]]:
    """Pods of a unit that its gangs do without, what leaving each costs, and why they wait: they come later.

    Args:
        begun: the gangs once the unit has its places. Pods of those that need more come with these.
    """
    for pod, price in unit.rest:
        names = [name for name in pod.gangs if name in begun]
        if not any(begun[name].min_placed for name in names):
            yield pod, price, as_sentence(f"{names[0]}: the pods that it needs take the places of running pods first")


def _units(problem: Problem, alone: Problem, *, gangs: bool) -> list[_Together]:
    """The pods that have a victim, by what they take their places with.

    Args:
        alone: the problem of these pods alone.
        gangs: whether gangs count.
    """
    new_pods = {
        pod.key: _NewPod(pod, pod.victim, int(price), demand)
        for demand in alone.demands
        for pod, price in zip(demand.group.pods, demand.prices, strict=True)
        if pod.victim is not None  # which is true of all, but the type checker does not know
    }
    units = list[_Together]()
    if gangs and any(each.pod.gangs and not each.victim.has_left for each in new_pods.values()):
        # A place that is kept was planned with its gang.
        asking = tuple(pod for pod in problem.snapshot.pending if pod.victim is None or not pod.victim.has_left)
        together = problem.with_snapshot(replace(problem.snapshot, pending=asking))
        members: dict[int, list[tuple[PendingPod, int]]] = defaultdict(list)
        for demand, group_of in zip(together.demands, together.atomic_groups.group_of, strict=True):
            for pod, price, number in zip(demand.group.pods, demand.prices.tolist(), group_of.tolist(), strict=True):
                if number >= 0:
                    members[number].append((pod, price))
        for number, of_group in members.items():
            named = [new_pods.pop(pod.key) for pod, _ in of_group if pod.victim is not None]
            named.sort(key=lambda each: each.rank)
            if named:
                rest = [(pod, price) for pod, price in of_group if pod.victim is None]
                units.append(_Together(named, together.atomic_groups.all[number], rest))
    return [*units, *(_Together((each,)) for each in new_pods.values())]


def _places(unit: _Together, alone: Problem, taken: _TakenPlaces) -> list[Placement]:
    """The places of a unit's pods.

    Raises:
        _NoPlace: one of them has none.
    """
    group = unit.group
    if group is not None and group.unschedulable_reason:
        raise _NoPlace(group.unschedulable_reason, GANG_INCOMPLETE)
    if len(unit.new_pods) > MAX_TOGETHER:
        many = f"{len(unit.new_pods)} pods of it name a pod that they replace, {MAX_TOGETHER} may"
        raise unit.no_place(unit.new_pods[0].pod, many)
    named = Counter[str]()
    for new_pod in unit.new_pods:
        named[new_pod.victim.key] += 1
        why = _why_not(new_pod, alone.snapshot, taken)
        if not why and named[new_pod.victim.key] > 1:
            why = f"another pod of it already replaces {new_pod.victim.key}"
        if why:
            raise unit.no_place(new_pod.pod, why)
    places = list[Placement]()
    for new_pod, without in _without_victims(unit.new_pods, taken):
        pod, victim = new_pod.pod, new_pod.victim
        verdicts, row = run_filters(pod.pod_class, without, pod.signature), without.table.index[victim.node]
        if not verdicts.fits[row]:
            does = f"cannot replace {victim.key}" if victim.key else "cannot take the room that is reserved for it"
            raise unit.no_place(pod, f"{does} on node {victim.node}: {verdicts.of_node(row)[1]}")
        price = _price(priced(alone, new_pod.demand), without, row)
        places.append(Placement(pod, victim.node, price, atomic_group="" if group is None else group.name))
    return places


def _why_not(new_pod: _NewPod, snapshot: Snapshot, taken: _TakenPlaces) -> str:
    """Why a pod may not have its victim's place whatever filters say; "": it may."""
    pod, victim = new_pod.pod, new_pod.victim
    if victim.unschedulable_reason:
        return victim.unschedulable_reason
    if victim.key in taken.successor_by_victim:
        return f"{taken.successor_by_victim[victim.key]} already replaces {victim.key}"
    if victim.node not in snapshot.table.index:
        return f"the pod it replaces, {victim.key}, is on node {victim.node}, which does not exist"
    row = snapshot.table.index[victim.node]
    for name in () if victim.has_left else pod.gangs:
        gang = snapshot.gangs.get(name)
        if gang is not None and gang.domain and not nodes_of_domain(gang, snapshot.table)[row]:
            return (
                f"cannot replace {victim.key} on node {victim.node}: {name} keeps to {gang.topology_key} {gang.domain}"
            )
    return ""


def _domain(gang: Gang, new_pods: Sequence[_NewPod], snapshot: Snapshot) -> str:
    """The domain of a gang once some of its pods have their places.

    Raises:
        _NoPlace: these are in several.
    """
    if not gang.needs_domain or not new_pods:
        return gang.domain
    column = snapshot.table.column(gang.topology_key)
    codes = {int(column.codes[snapshot.table.index[each.victim.node]]) for each in new_pods}
    if len(codes) == 1 and -1 not in codes:
        return column.values[codes.pop()]
    raise _NoPlace(f"{gang.name} keeps to one domain of {gang.topology_key}, and the pods that it replaces do not")


def _settled(result: RoundResult, begun: _Begun) -> RoundResult:
    """The result with a gang as a whole, or without any of it."""
    others = [each for each in result.placements if each.pod.key not in begun.prices]
    rest = [each for each in others if not begun.needs.keys().isdisjoint(each.pod.gangs)]
    placed = Counter(name for each in rest for name in each.pod.gangs)
    if all(placed[name] >= count for name, count in begun.needs.items()):
        # A network may place several gangs together.
        placements = tuple(
            replace(each, atomic_group=rest[0].atomic_group) if each.pod.key in begun.prices else each
            for each in result.placements
        )
        return replace(result, placements=placements)
    # They wait for what the first of the others waits for.
    why = next(each for each in result.unplaced if not begun.needs.keys().isdisjoint(each.pod.gangs))
    gone = [each for each in result.placements if each.pod.key in begun.prices]
    left = [Unplaced(each.pod, why.reason, begun.prices[each.pod.key], why.code, why.more_nodes_help) for each in gone]
    cost = result.cost + sum(each.price for each in left) - sum(each.price for each in gone)
    return replace(result, placements=tuple(others), unplaced=(*result.unplaced, *left), cost=cost)


def _without_victims(new_pods: Sequence[_NewPod], taken: _TakenPlaces) -> Iterator[tuple[_NewPod, Snapshot]]:
    """Each pod, and the cluster without the victims of all of them and with the others in their places."""
    change = taken.without([each.victim for each in new_pods])
    return ((each, beside.snapshot()) for each, beside in _beside_others(new_pods, change, taken.snapshot))


def _beside_others(
    new_pods: Sequence[_NewPod], change: ClusterChange, snapshot: Snapshot
) -> Iterator[tuple[_NewPod, ClusterChange]]:
    """Each of these, and a change with all others in their places: by halves, so that few changes are copied."""
    if len(new_pods) == 1:
        yield new_pods[0], change
        return
    half = len(new_pods) // 2
    for these, others in ((new_pods[:half], new_pods[half:]), (new_pods[half:], new_pods[:half])):
        beside = change.copy()
        for new_pod in others:
            beside.come(
                new_pod.pod,
                snapshot.table.index[new_pod.victim.node],
                snapshot.vector(new_pod.pod.pod_class.requests),
            )
        yield from _beside_others(these, beside, snapshot)


class _TakenPlaces:
    """The cluster with new pods in their places and with victims that have not left yet.

    Attributes:
        snapshot: the cluster without new pods.
        successor_by_victim: keys of victims and of the pods that take their places.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot, self._change = snapshot, ClusterChange(snapshot)
        self.successor_by_victim: dict[str, str] = {}

    def copy(self) -> _TakenPlaces:
        """An independent copy."""
        copied = _TakenPlaces(self.snapshot)
        copied._change, copied.successor_by_victim = self._change.copy(), dict(self.successor_by_victim)
        return copied

    def apply(self, new_pods: Sequence[_NewPod]) -> None:
        """Pods have the places of their victims: on each node the larger request of all of both counts."""
        index = self.snapshot.table.index
        spare: dict[int, Int64s] = {}
        for new_pod in new_pods:
            row, held = index[new_pod.victim.node], self._held(new_pod.victim)
            before = spare.get(row, np.zeros_like(held))
            spare[row] = np.minimum(before, MAX_AMOUNT - held) + held
        added, removed = self._change.index_changes
        for new_pod in new_pods:
            victim, row = new_pod.victim, index[new_pod.victim.node]
            asked = np.append(
                self.snapshot.vector(new_pod.pod.pod_class.requests), new_pod.pod.pod_class.non_zero_requests
            )
            more = np.maximum(asked - spare[row], 0)
            spare[row] = np.maximum(spare[row] - asked, 0)
            self._change.come(new_pod.pod, row, more[:-2], more[-2:])
            removed.append((victim.node, victim.signature))
            if not victim.has_left:
                added.append((victim.node, msgspec.structs.replace(victim.signature, deleting=True)))
                self.successor_by_victim[victim.key] = new_pod.pod.key

    def with_both(self, pending: tuple[PendingPod, ...]) -> Snapshot:
        """The snapshot with both: of each resource the larger request counts. Victims leave for nobody else."""
        if not self._change.index_changes[0]:
            return replace(self.snapshot, pending=pending)
        running = self.snapshot.running
        if running is not None:
            stay = tuple(pod for pod in running.pods if pod.key not in self.successor_by_victim)
            running = replace(running, pods=stay)
        return replace(self._change.snapshot(), pending=pending, running=running)

    def without(self, victims: Sequence[Victim]) -> ClusterChange:
        """The cluster without these victims too, and with no pod in their places."""
        change = ClusterChange(self._change.snapshot())
        for victim in victims:
            row, held = self.snapshot.table.index[victim.node], self._held(victim)
            # Where a sum was capped it is unknown what is left without the victim.
            usage = np.where(change.used[row] < MAX_AMOUNT, held[:-2], 0)
            change.leave(victim.signature, row, usage, held[-2:], victim.host_ports, victim.volumes)
        return change

    def _held(self, victim: Victim) -> Int64s:
        """int64[R + 2]: what a victim uses, of the resources of the snapshot, and what it counts for in costs."""
        names = self.snapshot.resources
        usage = self.snapshot.vector(tuple((name, amount) for name, amount in victim.usage if name in names))
        return np.append(usage, victim.non_zero_usage)


def _price(demand: Demand, without: Snapshot, row: int) -> int:
    load = Load.of(without, demand.potential.utilisation).at(np.array([row], dtype=np.int64))
    return int(demand.arc[row]) + int(demand.potential.increase(load, demand.size)[0])
