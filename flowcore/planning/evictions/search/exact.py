"""Small searches are decided once more by an integer program, which sees all waiting pods and all moves at once.

It knows resources only: searches with rules between pods, gangs among the residents that leave, shares that are taken
back, or several priorities stay as they were found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, PendingPod
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.evictions.eligibility import Eligibility
from flowcore.planning.evictions.fit_checks import FitCheck
from flowcore.planning.evictions.moves.movers import Movers
from flowcore.planning.evictions.search.program import (
    EvictionProgram,
    EvictionSolution,
    Incoming,
    InOneDomain,
    Outgoing,
    size_of,
    solve_program,
)
from flowcore.planning.problem.placements.decisions import Checkpoint, Decisions
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.placements.residents import losses_by_priority

#: Nodes and variables of a program.
_MAX_NODES, _MAX_SIZE = 48, 6_000
#: CP-SAT's deterministic time: some tenths of a second.
_WORK = 0.3
#: To lose a pod counts like so many of the next lower priority.
_FACTOR = 100


@dataclass(frozen=True, slots=True)
class Candidates:
    """Pods of one demand: those that wait have one priority, and all or none of them may preempt.

    Attributes:
        group: number of their atomic group; -1: each by itself.
        nodes: that may take them, the most promising first.
        residents: their placements, of pods that have nodes and keep one; (): they wait.
    """

    demand: int
    pods: tuple[PendingPod, ...]
    group: int
    fit_check: FitCheck
    nodes: tuple[int, ...]
    residents: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ChoosingGang:
    """A gang whose waiting pods all go to the same domain.

    Attributes:
        demands: of its pods.
        domains: int64[N], the domain of each node.
    """

    demands: frozenset[int]
    domains: Int64s


#: What the pods count for that are dearest to leave.
_MOST_WORTH = 64


@dataclass(frozen=True, slots=True)
class _Kept:
    """The program, and what its numbers stand for."""

    program: EvictionProgram
    nodes: tuple[int, ...]
    members: tuple[tuple[int, ...], ...]
    kinds: tuple[int, ...]


class ExactSearch:
    """Improves the decisions that a search made since a checkpoint."""

    def __init__(
        self,
        state: Plan,
        eligibility: Eligibility,
        moves: Movers,
        seed: int,
        *,
        preempts: bool,
    ) -> None:
        """``preempts``: whether the waiting pods may."""
        self._state, self._eligibility, self._moves = state, eligibility, moves
        self._seed, self._preempts = seed, preempts

    def improve(
        self,
        checkpoint: Checkpoint,
        candidates: Sequence[Candidates],
        priority: int,
        gangs: Sequence[ChoosingGang] = (),
    ) -> None:
        """Decides again, on a few nodes; the decisions stay where that brings nothing."""
        state = self._state
        decisions = state.since(checkpoint)
        if not self._knows_all(decisions, candidates):
            return
        state.roll_back(checkpoint)
        nodes = self._nodes(decisions, candidates)
        kept = self._program(nodes, candidates, priority, gangs) if nodes else None
        hint = None if kept is None else self._hint(kept, decisions, candidates)
        if kept is not None and hint is not None and size_of(kept.program) <= _MAX_SIZE:
            better = solve_program(kept.program, hint, work=_WORK, seed=self._seed)
            if better is not None and self._apply(kept, better, candidates):
                return
        state.roll_back(checkpoint)
        state.redo(decisions)

    def _knows_all(self, decisions: Decisions, candidates: Sequence[Candidates]) -> bool:
        """Whether a program can speak of all that was decided."""
        known = {pod.key for each in candidates for pod in each.pods}
        pods = self._state.residents.pods
        return (
            all(each.fit_check.by_node for each in candidates)
            and all(arrival.pod.key in known for arrival in decisions.arrivals)
            and not any(
                pods[resident].gang or leaving.kind is EvictionKind.RECLAIM for resident, leaving in decisions.leaving
            )
        )

    def _nodes(self, decisions: Decisions, candidates: Sequence[Candidates]) -> tuple[int, ...]:
        """The nodes of the decisions, then the best of each demand in turn; none that is overcommitted."""
        state, residents = self._state, self._state.residents
        sound = np.all(state.free >= 0, axis=1).tolist()
        decided = {arrival.node for arrival in decisions.arrivals}
        decided |= {int(residents.nodes[resident]) for each in candidates for resident in each.residents}
        for resident, leaving in decisions.leaving:
            decided |= {int(residents.nodes[resident]), leaving.to} - {-1}
        if len(decided) > _MAX_NODES or not all(sound[node] for node in decided):
            return ()
        room = np.argsort(-state.free_now().astype(np.float64).sum(axis=1), kind="stable").tolist()
        in_turn = [node for turn in zip(*(each.nodes for each in candidates), strict=False) for node in turn]
        order = [*sorted(decided), *in_turn, *(node for each in candidates for node in each.nodes), *room]
        return tuple(dict.fromkeys(node for node in order if sound[node]))[:_MAX_NODES]

    def _program(
        self,
        nodes: tuple[int, ...],
        candidates: Sequence[Candidates],
        priority: int,
        gangs: Sequence[ChoosingGang],
    ) -> _Kept:
        state, residents = self._state, self._state.residents
        place = np.array(nodes, dtype=np.int64)
        placed = {resident for each in candidates for resident in each.residents}
        alike: dict[tuple[object, ...], list[int]] = {}
        abilities: dict[int, tuple[bool, bool]] = {}
        for node in nodes:
            for resident in residents.on(node):
                pod = residents.pods[resident]
                if resident in placed or pod.gang or any(state.budgets[budget] <= 0 for budget in pod.budgets):
                    continue
                evicted = self._preempts and self._eligibility.may_leave(resident, priority)
                moved = (
                    self._moves.any
                    and self._moves.may_move(resident, priority)
                    and self._moves.destinations.allowed(resident)[0]
                )
                if evicted or moved:
                    abilities[resident] = evicted, moved
                    key = (node, residents.usage[resident].tobytes(), pod.priority, pod.budgets, pod.owner, pod.policy,
                           pod.pod_class, pod.signature, evicted, moved)  # fmt: skip
                    alike.setdefault(key, []).append(resident)
        members = tuple(tuple(group) for group in alike.values())
        losses = losses_by_priority((residents.pods[group[0]].priority for group in members), _FACTOR)
        limits: dict[object, int] = {}
        sizes: list[int] = []
        kinds: dict[object, int] = {}
        examples: list[int] = []

        def limit(key: object, most: int) -> int:
            if key not in limits:
                limits[key] = len(sizes)
                sizes.append(most)
            return limits[key]

        outgoing = []
        for group in members:
            resident, pod = group[0], residents.pods[group[0]]
            evicted, moved = abilities[resident]
            kind = (pod.pod_class, pod.signature, residents.usage[resident].tobytes())
            if moved and kind not in kinds:
                kinds[kind] = len(examples)
                examples.append(resident)
            move_limits = self._moves.limits(resident) if moved else {}
            outgoing.append(
                Outgoing(
                    node=nodes.index(int(residents.nodes[resident])),
                    usage=residents.usage[resident],
                    loss=losses[pod.priority],
                    most_victims=len(group) if evicted else 0,
                    most_moved=len(group) if moved else 0,
                    kind=kinds.get(kind, -1) if moved else -1,
                    limits=tuple(limit(budget, state.budgets[budget]) for budget in pod.budgets),
                    move_limits=tuple(limit(key, most) for key, most in move_limits.items()),
                    count=len(group),
                )
            )
        prices = np.array([float(state.demands[demand.demand].prices_in_priority.mean()) for demand in candidates])
        worths = np.maximum(np.rint(prices / max(float(prices.max(initial=1.0)), 1.0) * _MOST_WORTH), 1).astype(
            np.int64
        )
        incoming = [
            Incoming(
                state.demands[demand.demand].requests,
                demand.fit_check.possible[place],
                len(demand.pods),
                demand.group,
                are_placed=bool(demand.residents),
                worth=worth,
            )
            for demand, worth in zip(candidates, worths.tolist(), strict=True)
        ]
        destinations: list[Bools] = [self._moves.destinations.allowed(resident)[1][place] for resident in examples]
        free, free_now = state.free[place], state.free_now(place)
        for resident in placed:
            row = nodes.index(int(residents.nodes[resident]))
            free[row] += residents.usage[resident]
            free_now[row] += residents.usage[resident]
        together = [
            InOneDomain(
                [index for index, demand in enumerate(candidates) if demand.demand in gang.demands], gang.domains[place]
            )
            for gang in gangs
        ]
        program = EvictionProgram(free, free_now, incoming, outgoing, destinations, sizes, together)
        return _Kept(program, nodes, members, tuple(examples))

    def _hint(self, kept: _Kept, decisions: Decisions, candidates: Sequence[Candidates]) -> EvictionSolution | None:
        """The decisions in the program's terms; None: it cannot express them."""
        program, place = kept.program, {node: place_of for place_of, node in enumerate(kept.nodes)}
        arrivals = np.zeros((len(candidates), len(kept.nodes)), dtype=np.int64)
        victims, moved = (np.zeros(len(kept.members), dtype=np.int64) for _ in range(2))
        replacements = np.zeros((len(kept.kinds), len(kept.nodes)), dtype=np.int64)
        demand_of = {pod.key: number for number, each in enumerate(candidates) for pod in each.pods}
        for arrival in decisions.arrivals:
            arrivals[demand_of[arrival.pod.key], place[arrival.node]] += 1
        for number, demand in enumerate(candidates):
            for resident in demand.residents:
                arrivals[number, place[int(self._state.residents.nodes[resident])]] += 1
        group_of = {resident: number for number, group in enumerate(kept.members) for resident in group}
        for resident, leaving in decisions.leaving:
            group = group_of.get(resident)
            if group is None:
                return None
            if leaving.kind is EvictionKind.MIGRATION:
                if program.outgoing[group].kind < 0:
                    return None
                moved[group] += 1
                replacements[program.outgoing[group].kind, place[leaving.to]] += 1
            else:
                victims[group] += 1
        return EvictionSolution(arrivals, victims, moved, replacements)

    def _apply(self, kept: _Kept, solution: EvictionSolution, candidates: Sequence[Candidates]) -> bool:
        """Applies a solution. Returns whether every moved pod found another node."""
        state, residents = self._state, self._state.residents
        arriving = [
            (demand.demand, pod, node)
            for number, demand in enumerate(candidates)
            if not demand.residents
            for pod, node in zip(demand.pods, np.repeat(kept.nodes, solution.arrivals[number]).tolist(), strict=False)
        ]
        keys_on: dict[int, list[str]] = {}
        for _, pod, node in arriving:
            keys_on.setdefault(node, []).append(pod.key)
        every = [pod.key for _, pod, _ in arriving]
        moving: dict[int, list[int]] = {}
        elsewhere = self._placed_elsewhere(kept, solution, candidates)
        for resident, _, _, _ in elsewhere:
            state.let_leave(resident, self._eligibility.kind, every)
        for number, group in enumerate(kept.members):
            least_important_first = group[::-1]
            victims, moved = int(solution.victims[number]), int(solution.moved[number])
            for resident in least_important_first[:victims]:
                state.let_leave(resident, self._eligibility.kind, keys_on.get(int(residents.nodes[resident]), every))
            for resident in least_important_first[victims : victims + moved]:
                state.let_leave(resident, self._moves.kind, keys_on.get(int(residents.nodes[resident]), every))
                moving.setdefault(kept.program.outgoing[number].kind, []).append(resident)
        for kind, members in moving.items():
            for node in np.repeat(kept.nodes, solution.replacements[kind]).tolist():
                others = [resident for resident in members if int(residents.nodes[resident]) != node]
                if not others:
                    return False
                members.remove(others[0])
                state.reserve_replacement(others[0], node, is_move=True)
            if members:
                return False
        for _, demand, pod, node in elsewhere:
            state.arrive(pod, demand, node)
        for demand, pod, node in arriving:
            state.arrive(pod, demand, node)
        return True

    def _placed_elsewhere(
        self, kept: _Kept, solution: EvictionSolution, candidates: Sequence[Candidates]
    ) -> list[tuple[int, int, PendingPod, int]]:
        """Placements that go to another node: resident, demand, pod and node."""
        moved = []
        for number, demand in enumerate(candidates):
            nodes = np.repeat(kept.nodes, solution.arrivals[number]).tolist() if demand.residents else []
            leaving = []
            for resident, pod in zip(demand.residents, demand.pods, strict=False):
                home = int(self._state.residents.nodes[resident])
                if home in nodes:
                    nodes.remove(home)
                else:
                    leaving.append((resident, demand.demand, pod))
            moved += [(*entry, node) for entry, node in zip(leaving, nodes, strict=True)]
        return moved
