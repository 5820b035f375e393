"""Independent parts of a problem: demands that share no node and no rule between pods, each solved by itself.

A pool of nodes that only its own pods may use is a part, for example. What is decided in one part changes nothing in
the others: so costs and lower bounds of the parts add up, and their plans are one plan. In each part the methods are
chosen by what it needs. Small parts may be solved exactly where the whole is too large, and flows decide where there is
room although other parts are short of it.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable

import numpy as np

from flowcore.model.pods import PodClass
from flowcore.planning.methods.relaxation import RelaxedSolution
from flowcore.planning.methods.without_penalties import WithoutPenalties
from flowcore.planning.problem.demands.atomic_groups import no_atomic_groups
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import Commit, pods_by_node
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.waiting import replay
from flowcore.planning.round.portfolio import Portfolio
from flowcore.rules.topology.connected_components import connected_components

#: Smaller parts are solved together: each part costs some time of its own.
_MOST_PARTS = 16
#: What all pods share that claim devices.
_DEVICES = "devices"
#: What all pods share that take volumes from each other.
_VOLUMES = "volumes"


def independent_parts(problem: Problem) -> list[list[int]]:
    """Numbers of the demands of each part, at most sixteen, the largest first.

    Demands that no node has room for are in the first. Pods that cost something beside each other are in one part.
    """
    demands = problem.demands
    usable = [demand.counts > 0 for demand in demands]
    sizes = [int(np.count_nonzero(nodes)) for nodes in usable]
    order = sorted((number for number in range(len(demands)) if sizes[number]), key=lambda number: -sizes[number])
    everything = list(range(len(demands)))
    if len(order) < 2 or WithoutPenalties.any(problem):
        return [everything]
    if all((usable[number] & usable[order[0]]).any() for number in order):
        return [everything]  # all others share a node with the demand that has most
    #: By node: a demand seen so far that uses it.
    owner = np.full(len(problem.start.free), len(demands), dtype=np.int64)
    keys: list[set[Hashable]] = []
    for number in order:
        beside = np.zeros(len(demands) + 1, dtype=np.bool_)
        beside[owner[usable[number]]] = True
        owner[usable[number]] = number
        constraints = demands[number].constraints
        soft = constraints.soft_constraints
        keys.append({number, *np.nonzero(beside[:-1])[0].tolist(), *constraints.increments, *constraints.reads})
        keys[-1].update(() if soft is None else soft.reads)
        if demands[number].group.pod_class.devices is not None:
            keys[-1].add(_DEVICES)  # claims and pools may be those of several nodes
        if demands[number].group.pod_class.contends_for_volumes:
            keys[-1].add(_VOLUMES)  # several nodes may reach a volume
    parts = sorted(
        ([order[item] for item in part] for part in connected_components(keys)),
        key=lambda part: (-sum(demands[number].count for number in part), min(part)),
    )
    if len(parts) > _MOST_PARTS:
        parts[_MOST_PARTS - 1 :] = [[number for part in parts[_MOST_PARTS - 1 :] for number in part]]
    parts[0] = [*parts[0], *(number for number in everything if not sizes[number])]
    return [sorted(part) for part in parts]


def solver_of(
    problem: Problem, seed: int, first: Candidate | None = None, relaxed: RelaxedSolution | None = None
) -> Portfolio | PartedPortfolio:
    """A portfolio of the problem, or of its parts if it has several. Atomic groups are decided before that.

    Args:
        first, relaxed: see Portfolio.
    """
    parts = [] if problem.atomic_groups.all else independent_parts(problem)
    if len(parts) < 2:
        return Portfolio(problem, seed, first, relaxed)
    return PartedPortfolio(problem, parts, seed, first)


class PartedPortfolio:
    """Solves the parts of a problem by turns, a step of each, and searches in all of them at last."""

    def __init__(self, problem: Problem, parts: list[list[int]], seed: int = 0, first: Candidate | None = None) -> None:
        """Begins as a portfolio does."""
        self._problem, self._parts = problem, parts
        self._portfolios = [
            Portfolio(_restricted(problem, part), seed, None if first is None else _part_of(problem, part, first))
            for part in parts
        ]
        self._seed = seed
        #: After the parts are decided: all of them, for the search.
        self._whole: Portfolio | None = None
        #: The last candidates of the parts that were joined, and what they were joined to.
        self._last: tuple[list[Candidate], Candidate] | None = None

    @property
    def solves(self) -> int:
        """Min-cost flows solved."""
        return sum(portfolio.solves for portfolio in self._all)

    @property
    def arcs(self) -> int:
        """Arcs of the largest flow."""
        return max(portfolio.arcs for portfolio in self._all)

    @property
    def relaxed(self) -> list[RelaxedSolution]:
        """The parts in fractions, as far as they were solved so."""
        return [solution for portfolio in self._all for solution in portfolio.relaxed]

    @property
    def bound(self) -> int:
        """A cost that no candidate goes below."""
        bound = sum(portfolio.bound for portfolio in self._portfolios)
        return bound if self._whole is None else max(bound, self._whole.bound)

    @property
    def improved_by(self) -> set[str]:
        """Methods whose candidate was better than the best before."""
        return set[str]().union(*(portfolio.improved_by for portfolio in self._all))

    @property
    def _all(self) -> list[Portfolio]:
        return self._portfolios if self._whole is None else [*self._portfolios, self._whole]

    def run(self) -> Generator[None, None, None]:
        """Yields after each step. The first step is the first one of every part, so that all pods are planned."""
        yield from _by_turns([_decide(portfolio) for portfolio in self._portfolios])
        self._whole = whole = Portfolio(self._problem, self._seed, self._joined())
        whole.bound = self.bound
        yield from whole.search()

    def construct(self) -> Generator[None, None, None]:
        """The candidates of each part that are built in one go; yields after each step, which are as those of run."""
        yield from _by_turns([portfolio.construct() for portfolio in self._portfolios])

    def conclude(self) -> Candidate:
        """The best candidate so far."""
        return self._joined() if self._whole is None else self._whole.conclude()

    def _joined(self) -> Candidate:
        """The best candidates of all parts as one, of the problem."""
        conclusions = [portfolio.conclude() for portfolio in self._portfolios]
        if self._last is not None and all(
            last is conclusion for last, conclusion in zip(self._last[0], conclusions, strict=True)
        ):
            return self._last[1]
        commits = [
            Commit(part[commit.demand], commit.node, commit.count)
            for part, candidate in zip(self._parts, conclusions, strict=True)
            for commit in candidate.commits
        ]
        largest = max(conclusions, key=lambda candidate: len(candidate.commits))
        joined = self._problem.candidate(largest.method, commits, _capacity_after(self._problem, commits))
        self._last = conclusions, joined
        return joined


#: What a generator that has ended gives.
_END = object()


def _by_turns(running: list[Generator[None, None, None]]) -> Generator[None, None, None]:
    """A step of each at once, then a step of each by turns."""
    running = [steps for steps in running if next(steps, _END) is not _END]
    yield
    while running:
        for steps in tuple(running):
            if next(steps, _END) is _END:
                running.remove(steps)
            else:
                yield


def _decide(portfolio: Portfolio) -> Generator[None, None, None]:
    yield from portfolio.construct()
    yield from portfolio.decide()


def _capacity_after(problem: Problem, commits: list[Commit]) -> Plan:
    """What commits leave free that parts of the problem have taken."""
    if any(_takes_in_order(problem.demands[commit.demand].group.pod_class) for commit in commits):
        return replay(problem, commits)[1]
    capacity = problem.start.copy()
    for number, node_counts in pods_by_node(commits).items():
        nodes, counts = (np.array(list(each), dtype=np.int64) for each in (node_counts.keys(), node_counts.values()))
        capacity.place_many(problem.demands[number], nodes, counts)
    return capacity


def _takes_in_order(pod_class: PodClass) -> bool:
    """Whether the order of placements decides what is taken: which zones, which devices, which volumes."""
    return pod_class.numa is not None or pod_class.devices is not None or pod_class.contends_for_volumes


def _restricted(problem: Problem, part: list[int]) -> Problem:
    """The problem of some of its demands, for the same nodes."""
    demands = tuple(problem.demands[number] for number in part)
    return problem.with_demands(
        demands, no_atomic_groups(demands), tuple(problem.must_place[number] for number in part)
    )


def _part_of(problem: Problem, part: list[int], candidate: Candidate) -> Candidate:
    """What a candidate does in a part."""
    restricted, place = _restricted(problem, part), {demand: number for number, demand in enumerate(part)}
    commits_of_part = [
        Commit(place[commit.demand], commit.node, commit.count)
        for commit in candidate.commits
        if commit.demand in place
    ]
    commits, capacity = replay(restricted, commits_of_part)
    return restricted.candidate(candidate.method, commits, capacity)
