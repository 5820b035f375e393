"""Who comes, who leaves and who gets another node, as one integer program over a few nodes.

Pods that are alike are one count: those that come, by node; and of those that run, by node, how many are lost and how
many get another node (the arcs of figure 1 of the seed firmament-poseidon-overview.md: to stay costs nothing, to leave
and to move cost theirs). Sums in their order, for each level: what waits, the highest priority of a victim, and how
many there are, the less important ones rather; then how many get another node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, PendingPod, Snapshot
from flowcore.model.running_pods import RunningPod
from flowcore.planning.evictions.eligibility import Eligibility
from flowcore.planning.evictions.fit_checks import FitCheck
from flowcore.planning.evictions.moves.destinations import enough
from flowcore.planning.evictions.moves.movers import Movers
from flowcore.planning.evictions.program.coming import ChoosingGang, Coming, Levels
from flowcore.planning.evictions.program.ordered_program import OrderedProgram, WeightedColumns
from flowcore.planning.problem.placements.cluster_change import ClusterChange
from flowcore.planning.problem.placements.decisions import Decisions
from flowcore.planning.problem.placements.plans import Plan
from flowcore.rules.filters import run_beside_room, run_filters

#: Sums of a level: what waits, the highest priority that is lost, and how many are lost.
_SUMS, _HIGHEST, _LOST = 3, 1, 2
#: Columns of a program.
_MOST_COLUMNS = 8_000
#: Nodes of a program that knows new nodes of victims; else they are found afterwards.
_FEW_NODES = 12
#: Verdicts of all filters for pods with rules.
_MOST_VERDICTS = 600


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """Residents of a node that are alike, the least important first.

    Attributes:
        place: of their node in the program.
        kind: number of their kind among the residents.
        is_move: whether a policy moves those that get another node.
        lost, kept: columns of how many leave for good, and how many for another node; None: none may.
    """

    members: tuple[int, ...]
    place: int
    kind: int
    priority: int
    usage: Int64s
    is_move: bool
    lost: int | None
    kept: int | None

    @property
    def columns(self) -> list[int]:
        """Of all that leave."""
        return [column for column in (self.lost, self.kept) if column is not None]

    def given(self, level: int | None) -> list[int]:
        """Columns of those that leave for pods up to a priority; None: for pods that evict nobody."""
        lost = self.lost if level is not None and self.priority < level else None
        kept = self.kept if (self.is_move if level is None else self.priority < level + self.is_move) else None
        return [column for column in (lost, kept) if column is not None]


class EvictionProgram:
    """The program for some nodes, and its answer as decisions.

    Attributes:
        has_rules: residents with rules of their own may get other nodes.
    """

    def __init__(
        self,
        state: Plan,
        eligibility: Eligibility,
        movers: Movers,
        coming: Sequence[Coming],
        gangs: Sequence[ChoosingGang],
        checks: Sequence[FitCheck],
        nodes: Sequence[int],
        known: Decisions,
        stay: Collection[int],
        *,
        by_filters: bool,
    ) -> None:
        """States it.

        Args:
            coming: all pods that may come, and placements that may change.
            gangs: those that choose a domain.
            checks: for each of ``coming``.
            nodes: numbers of the nodes.
            known: decisions to start from, which the state has taken back.
            stay: residents that do not leave.
            by_filters: residents with rules of their own may get other nodes, where all nodes are in the program.
        """
        self._by_filters, self.has_rules = by_filters, False
        self._state, self._residents, self._nodes = state, state.residents, nodes
        self._eligibility, self._movers, self._coming, self._checks = eligibility, movers, coming, checks
        self._known, self._known_at = known, Counter((each.pod.key, each.node) for each in known.arrivals)
        self._stay = stay
        self._placed = {resident for each in coming for resident in each.residents}
        self._levels = Levels(coming)
        checkpoint = state.checkpoint()
        for resident in self._placed:
            state.let_leave(resident, eligibility.kind, ())
        #: int64[N, R]: on each node, if no placement that may change were there, in the end and before anybody leaves.
        self._free, self._free_now = state.free.copy(), state.free_now().copy()
        #: By kind of resident: ``_destinations_of``.
        self._destinations: dict[int, Bools] = {}
        self._program = OrderedProgram(_SUMS * len(self._levels.priorities) + 1)
        #: Columns of those that are lost, by priority.
        self._lost: dict[int, WeightedColumns] = {}
        self._runs = self._add_runs()
        state.roll_back(checkpoint)
        #: By kind of resident and place, and by class and place.
        self._moved_in = self._add_destinations()
        #: Columns of pods on a node where one of their class is placed.
        self._at_home: set[int] = set()
        self._columns = self._add_coming()
        self._add_highest()
        self._add_room()
        self._add_limits()
        for gang in gangs:
            self._add_domain(gang)

    def decide(self, *, work: float, seed: int) -> bool:
        """Decides what is found best. Returns whether anything was found.

        Args:
            work: CP-SAT's deterministic time, roughly seconds.
        """
        if not self._columns or not self._add_rules() or len(self._program) > _MOST_COLUMNS:
            return False
        values = self._program.solve(work=work, seed=seed)
        return values is not None and self._apply(np.rint(values).astype(np.int64).tolist())

    # --- columns ---

    def _add_runs(self) -> list[_Run]:
        residents, movers, levels = self._residents, self._movers, self._levels
        highest = max((each.priority for each in self._coming if each.preempts), default=-(2**31))
        alike: dict[tuple[object, ...], list[int]] = {}
        abilities: dict[int, tuple[int, bool, bool, bool]] = {}
        is_small, has_rules = len(self._nodes) <= _FEW_NODES, not all(check.by_node for check in self._checks)
        for place, node in enumerate(self._nodes):
            for resident in reversed(residents.on(node)):
                pod = residents.pods[resident]
                is_move = movers.may_move(resident, levels.priorities[0])
                limits = self._eligibility.limits_of(resident)
                lost = self._eligibility.may_leave(resident, highest) and min(limits.values(), default=1) > 0
                can_go = (is_move or (lost and is_small)) and movers.is_made_again(resident)
                kept = can_go and bool(self._destinations_of(resident).any())
                if resident not in self._placed and resident not in self._stay and (lost or kept):
                    abilities[resident] = place, is_move, lost, kept
                    kind = int(residents.kinds[resident]) if kept or has_rules else residents.usage[resident].tobytes()
                    owner = pod.owner if kept else ""
                    key = (*abilities[resident], kind, pod.priority, pod.budgets, owner, pod.gang)
                    alike.setdefault(key, []).append(resident)
        gone = {resident: leaving.to >= 0 for resident, leaving in self._known.leaving}
        tiers = sorted({residents.pods[resident].priority for resident, (_, _, lost, _) in abilities.items() if lost})
        self._most_lost = (len(abilities) + 1) * len(tiers) or 1
        runs = list[_Run]()
        for members in alike.values():
            place, is_move, may_be_lost, may_be_kept = abilities[members[0]]
            priority, count = residents.pods[members[0]].priority, len(members)
            known_kept, known_lost = (sum(gone.get(each) is kept for each in members) for kept in (True, False))
            lost_column = kept_column = None
            if may_be_lost:
                cost = self._most_lost - len(tiers) + tiers.index(priority)
                level = levels.of_victim(priority)
                lost_column = self._program.column(count, known_lost, {_SUMS * level + _LOST: cost})
                self._lost.setdefault(priority, []).append((lost_column, 1))
            if may_be_kept:
                kept_column = self._program.column(count, known_kept, {_SUMS * len(levels.priorities): 1})
            kind, usage = int(residents.kinds[members[0]]), residents.usage[members[0]]
            run = _Run(tuple(members), place, kind, priority, usage, is_move, lost_column, kept_column)
            self._program.bind([(column, 1) for column in run.columns], count)
            runs.append(run)
        return runs

    def _destinations_of(self, resident: int) -> Bools:
        """bool[N]: nodes that may take the replacement of a resident, by room or all filters."""
        kind, destinations = int(self._residents.kinds[resident]), self._movers.destinations
        if kind not in self._destinations:
            plain, allowed = destinations.allowed(resident)
            allowed = allowed & enough(self._free_now, self._residents.usage[resident])
            if not plain:
                usable = np.nonzero(allowed)[0]
                allowed = np.zeros_like(allowed)
                if self._by_filters and len(allowed) == len(self._nodes):
                    allowed[destinations.passing(resident, usable)] = True
                    self.has_rules |= bool(allowed.any())
            self._destinations[kind] = allowed
        return self._destinations[kind]

    def _add_destinations(self) -> dict[tuple[int, int], int]:
        """Columns of those that get other nodes: as many as leave for one."""
        leaving: dict[int, list[_Run]] = {}
        for run in self._runs:
            if run.kept is not None:
                leaving.setdefault(run.kind, []).append(run)
        known = Counter((int(self._residents.kinds[each]), why.to) for each, why in self._known.leaving)
        moved_in = dict[tuple[int, int], int]()
        for kind, runs in leaving.items():
            allowed = self._destinations_of(runs[0].members[0])
            count = sum(len(run.members) for run in runs)
            here = {
                (kind, place): self._program.column(count, known[kind, node])
                for place, node in enumerate(self._nodes)
                if allowed[node]
            }
            kept = [(run.kept, -1.0) for run in runs if run.kept is not None]
            self._program.row([*kept, *((column, 1.0) for column in here.values())], 0, 0)
            moved_in |= here
        return moved_in

    def _add_coming(self) -> dict[tuple[int, int], int]:
        """Columns of the pods that come, with how many wait: the cheapest to leave, or a whole group."""
        program, columns = self._program, dict[tuple[int, int], int]()
        arrived = {arrival.pod.key for arrival in self._known.arrivals}
        gone = {resident for resident, _ in self._known.leaving}
        absent: dict[int, int] = {}
        for index, alike in enumerate(self._coming):
            homes, count = Counter(self._residents.nodes[list(alike.residents)].tolist()), len(alike.pods)
            terms: WeightedColumns = []
            for place, node in enumerate(self._nodes):
                if self._checks[index].possible[node]:
                    known = homes[node] + sum(self._known_at[pod.key, node] for pod in alike.pods)
                    columns[index, place] = program.column(count, known)
                    terms.append((columns[index, place], 1.0))
                    if homes[node]:
                        self._at_home.add(columns[index, place])
            level, stay = _SUMS * self._levels.priorities.index(alike.priority), set(alike.residents) - gone
            waiting = sum(pod.key not in arrived for pod in alike.pods) - len(stay)
            if alike.group >= 0:
                if alike.group not in absent:
                    absent[alike.group] = program.column(1, int(waiting > 0))
                program.add_cost(absent[alike.group], level, sum(alike.worths))
                terms.append((absent[alike.group], count))
            else:
                # A placement that gives way is lost as a running pod is: two give no way for the new node of a victim.
                above = _SUMS * self._levels.of_victim(alike.priority)
                lost = {above + _LOST: self._most_lost} if alike.residents else {}
                for worth, number in sorted(Counter(alike.worths).items()):
                    terms.append((program.column(number, min(number, waiting), {level: worth, **lost}), 1.0))
                    if lost:
                        self._lost.setdefault(alike.priority, []).append((terms[-1][0], 1))
                    waiting -= min(number, waiting)
            program.row(terms, count, count)
        return columns

    # --- rows ---

    def _add_highest(self) -> None:
        """The highest priority of those that are lost, for each level."""
        program, levels = self._program, self._levels
        #: Of each level the column of the next higher priority.
        higher: dict[int, int] = {}
        for priority, terms in sorted(self._lost.items(), reverse=True):
            level, most = levels.of_victim(priority), sum(program.most[column] for column, _ in terms)
            above = higher.get(level)
            known = any(program.known[column] for column in (*dict(terms), *([] if above is None else [above])))
            higher[level] = program.column(1, int(known), {_SUMS * level + _HIGHEST: 1})
            program.row([*terms, (higher[level], -most)], 0)
            if above is not None:
                program.row([(above, 1), (higher[level], -1)], 0)

    def _add_room(self) -> None:
        """What is free on a node, and what each that leaves it gives: to pods above it only."""
        state = self._state
        free, free_now = self._free[self._nodes], self._free_now[self._nodes]
        usage = {run.kind: run.usage for run in self._runs}
        for place in range(len(self._nodes)):
            here = [run for run in self._runs if run.place == place]
            come = [(self._coming[index], column) for (index, where), column in self._columns.items() if where == place]
            into = [(usage[kind], column) for (kind, where), column in self._moved_in.items() if where == place]
            levels: list[int | None] = [
                level for level in self._levels.priorities if any(run.priority >= level for run in here)
            ]
            if any(not each.preempts for each, _ in come):
                levels.append(None)
            at_home = [(each, column) for each, column in come if column in self._at_home]
            for resource, room in enumerate(free[place].tolist()):
                moved_in = [(column, float(amounts[resource])) for amounts, column in into]

                def asked_by(some: Sequence[tuple[Coming, int]], resource: int = resource) -> WeightedColumns:
                    return [(column, float(state.demands[each.demand].requests[resource])) for each, column in some]

                if into:
                    self._add_room_now(moved_in, asked_by(at_home), float(free_now[place, resource]))
                for level in dict.fromkeys((self._levels.priorities[0], *levels)):
                    # A placement that stays has its room before anybody leaves: it leaves none of it to others.
                    asking = [
                        (each, column)
                        for each, column in come
                        if (not each.preempts if level is None else each.priority <= level) or column in self._at_home
                    ]
                    if asking or level == self._levels.priorities[0]:
                        given = [(column, -float(run.usage[resource])) for run in here for column in run.given(level)]
                        self._program.bind([*asked_by(asking), *moved_in, *given], room)

    def _add_room_now(self, moved_in: WeightedColumns, at_home: WeightedColumns, room: float) -> None:
        """Of a node before anybody leaves; pods of a class with a placement there share it where others move in."""
        program = self._program
        most = sum(amount * program.most[column] for column, amount in at_home)
        if not moved_in or most <= room:
            program.bind([*moved_in, *at_home], room)
            return
        any_moves_in = program.column(1, int(any(program.known[column] for column, _ in moved_in)))
        columns = [column for column, _ in moved_in]
        program.row(
            [*((column, 1) for column in columns), (any_moves_in, -sum(program.most[each] for each in columns))], 0
        )
        program.row([*moved_in, *at_home, (any_moves_in, most)], room + most)

    def _add_limits(self) -> None:
        """PodDisruptionBudgets, what gangs can spare, and limits of moves."""
        limits, counted = dict[object, int](), dict[object, WeightedColumns]()

        def count(key: object, most: int, columns: Sequence[int]) -> None:
            limits[key] = min(most, limits.get(key, most))  # policies may have other limits for the same node
            counted.setdefault(key, []).extend((column, 1.0) for column in columns)

        for run in self._runs:
            for name, most in self._eligibility.limits_of(run.members[0]).items():
                count(name, most, run.columns)
            if run.is_move and run.kept is not None:
                for key, most in self._movers.limits(run.members[0]).items():
                    count(key, most, [run.kept])
        for limited, most in limits.items():
            self._program.bind(counted[limited], most)

    def _add_domain(self, gang: ChoosingGang) -> None:
        """The gang has one domain at most, and its pods come to the nodes of that one only."""
        members = {
            index for index, each in enumerate(self._coming) if each.group == gang.group and each.demand in gang.demands
        }
        keys = {pod.key for index in members for pod in self._coming[index].pods}
        known = {int(gang.domains[node]) for key, node in self._known_at if key in keys}
        domains: list[int] = gang.domains[self._nodes].tolist()
        chosen = {domain: self._program.column(1, int(domain in known)) for domain in dict.fromkeys(domains)}
        self._program.row([(column, 1) for column in chosen.values()], 1)
        for (index, place), column in self._columns.items():
            if index in members:
                most = len(self._coming[index].pods) if domains[place] >= 0 else 0
                self._program.row([(column, 1), (chosen[domains[place]], -most)], 0)

    def _add_rules(self) -> bool:
        """Who must leave for pods with rules or ports, and who cannot be beside whom. Whether that could be asked."""
        classes, columns, program = range(len(self._coming)), self._columns, self._program
        ruled = [index for index in classes if not self._checks[index].by_node]
        if len(ruled) * (len(self._runs) + len(classes) * len(self._nodes)) > _MOST_VERDICTS:
            return False
        # Others may be what lets a pod with other rules in.
        asked = [index for index in ruled if self._coming[index].only_forbids]
        if not asked:
            return True
        everybody = {member for run in self._runs for member in run.members} | self._placed
        empty = self._state.snapshot(sorted(everybody), arrivals=())
        all_places = range(len(self._nodes))
        #: Pods that may be in the way, with those that are alike: by kind of residents their largest run.
        largest: dict[int, _Run] = {}
        for run in self._runs:
            largest[run.kind] = max(run, largest.get(run.kind, run), key=lambda each: len(each.members))
        some: dict[tuple[int, int], int] = {}

        def any_at(index: int, place: int) -> int:
            if (index, place) not in some:
                column, most = columns[index, place], len(self._coming[index].pods)
                some[index, place] = program.column(1, min(1, program.known[column]))
                program.row([(column, 1), (some[index, place], -most)], 0)
            return some[index, place]

        def let_in(index: int, cluster: Snapshot) -> Bools:
            """bool[P]: the nodes of the program that nothing but room keeps a class off."""
            group = self._state.demands[self._coming[index].demand].group
            fits: Bools = run_filters(group.pod_class, cluster, group.signature, run_beside_room).fits[self._nodes]
            return fits

        def with_pods(pod: PendingPod | RunningPod, usage: Int64s, places: Collection[int], count: int = 1) -> Snapshot:
            """The cluster without those who may leave, and with so many pods like this one at each of some places."""
            change = ClusterChange(empty)
            for place in places:
                for _ in range(count):
                    change.come(pod, self._nodes[place], usage)
            return change.snapshot()

        def places(index: int, chosen: Bools) -> list[int]:
            return [place for place in np.nonzero(chosen)[0].tolist() if (index, place) in columns]

        for index in asked:
            alone = let_in(index, empty)
            for place in places(index, ~alone):
                program.row([(columns[index, place], 1)], 0)
            level = self._coming[index].priority if self._coming[index].preempts else None
            signature, keeps_off = self._coming[index].pods[0].signature, self._movers.destinations.keeps_off
            for (kind, place), column in self._moved_in.items():
                of_kind = self._residents.kind_list[kind].signature
                for key in sorted(keeps_off(signature, of_kind) | keeps_off(of_kind, signature)):
                    codes = self._state.before.table.column(key).codes[self._nodes]
                    for near in places(index, (codes == codes[place]) & (codes >= 0)):
                        program.row([(column, 1), (any_at(index, near), len(everybody))], len(everybody))
            in_the_way = {
                kind
                for kind, run in largest.items()
                if (alone & ~let_in(index, with_pods(*self._like(run), all_places, len(run.members)))).any()
            }
            for run in self._runs:
                if run.kind not in in_the_way:
                    continue
                leaving = [(column, -1) for column in run.given(level)]
                if (run.kind, run.place) in self._moved_in:  # one that is alike comes in its place
                    leaving.append((self._moved_in[run.kind, run.place], 1))
                staying = with_pods(*self._like(run), [run.place], len(run.members))
                for place in places(index, alone & ~let_in(index, staying)):
                    program.row([(any_at(index, place), len(run.members)), *leaving], 0)
            keeping_off = {
                second
                for second, alike in enumerate(self._coming)
                if (alone & ~let_in(index, with_pods(alike.pods[-1], self._requests(second), all_places))).any()
            }
            for second, home in list(columns):
                if second not in keeping_off:
                    continue
                beside = with_pods(self._coming[second].pods[-1], self._requests(second), [home])
                for place in places(index, alone & ~let_in(index, beside)):
                    if (index, place) == (second, home):
                        program.row([(columns[index, place], 1)], 1)
                    else:
                        program.row([(any_at(index, place), 1), (any_at(second, home), 1)], 1)
        return True

    def _like(self, run: _Run) -> tuple[RunningPod, Int64s]:
        """A pod of a run, and what it takes. Devices and NUMA zones are not free once it leaves: it has them anyway."""
        pod = self._residents.pods[run.members[0]]
        holds_none = msgspec.structs.replace(pod.pod_class, devices=None, numa=None)
        return msgspec.structs.replace(pod, pod_class=holds_none), run.usage

    def _requests(self, index: int) -> Int64s:
        return self._state.demands[self._coming[index].demand].requests

    # --- decisions ---

    def _apply(self, values: Sequence[int]) -> bool:
        """Decides so. Returns whether each that leaves does so for a pod above it, and its next node takes it."""
        state, residents, nodes = self._state, self._residents, self._nodes
        gone: list[tuple[int, int]] = []
        coming: list[tuple[Coming, PendingPod, int]] = []
        for index, alike in enumerate(self._coming):
            counts = [(place, values[column]) for (number, place), column in self._columns.items() if number == index]
            on = [nodes[place] for place, count in counts for _ in range(count)]
            pods = list(alike.pods)
            for resident, pod in zip(alike.residents, alike.pods, strict=False):
                if int(residents.nodes[resident]) in on:
                    on.remove(int(residents.nodes[resident]))
                    pods.remove(pod)
                else:
                    gone.append((resident, alike.priority))
            coming += [(alike, pod, node) for pod, node in zip(pods, on, strict=False)]
        for resident, priority in gone:
            above = [(pod.key, node) for alike, pod, node in coming if alike.priority > priority]
            here = [key for key, node in above if node == residents.nodes[resident]]
            state.let_leave(resident, self._eligibility.kind, here or [key for key, _ in above])
        to: dict[int, list[int]] = {}
        for (kind, place), column in self._moved_in.items():
            to.setdefault(kind, []).extend([nodes[place]] * values[column])
        leaving = []
        for run in self._runs:
            lost, kept = (0 if column is None else values[column] for column in (run.lost, run.kept))
            while kept and nodes[run.place] in to[run.kind]:  # it stays, and none like it comes
                to[run.kind].remove(nodes[run.place])
                kept -= 1
            leaving += [(run, member, number >= lost) for number, member in enumerate(run.members[: lost + kept])]
        for run, member, is_kept in leaving:
            by_policy = is_kept and run.is_move
            above = [
                (pod.key, node)
                for each, pod, node in coming
                if (each.priority >= run.priority if by_policy else each.preempts and each.priority > run.priority)
            ]
            if not above:
                return False
            here = [key for key, node in above if node == nodes[run.place]]
            why = self._movers.kind if by_policy else self._eligibility.kind
            state.let_leave(member, why, here or [key for key, _ in above])
            if is_kept:
                node = next(node for node in to[run.kind] if node != nodes[run.place])
                to[run.kind].remove(node)
                state.reserve_replacement(member, node, is_move=by_policy)
        highest: dict[int, int] = {}
        for run, _, is_kept in leaving:
            if not (is_kept and run.is_move):
                highest[nodes[run.place]] = max(run.priority, highest.get(nodes[run.place], run.priority))
        # Who may not have what victims leave has the room that is free.
        for alike, pod, node in sorted(
            coming, key=lambda entry: entry[0].preempts and entry[0].priority > highest.get(entry[2], -(2**31))
        ):
            state.arrive(pod, alike.demand, node)
        return all(self._movers.destinations.has_place(member) for _, member, _ in leaving)
