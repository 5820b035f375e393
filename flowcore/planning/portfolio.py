"""A portfolio of methods for a problem without atomic groups: each step leaves the best candidate at least as good.

A round may stop after any step. The number of steps reproduces its plan, so a wall clock may decide when to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import numpy as np

from flowcore.cluster.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s
from flowcore.methods.constructive import FixedPart, constrained_first, fill, missing_pods, one_by_one
from flowcore.methods.cp_sat import Subproblem, solve_exact, worth_solving
from flowcore.methods.flow import solve_by_flow
from flowcore.methods.lns import LargeNeighbourhoodSearch
from flowcore.methods.local_search import LocalSearch
from flowcore.methods.relaxation import relax
from flowcore.methods.rounded_relaxation import rounded_candidates
from flowcore.problem.bounds import lower_bound
from flowcore.problem.candidate import Candidate
from flowcore.problem.demands import Demand
from flowcore.problem.objective import unplaced_counts
from flowcore.problem.problem import Problem
from flowcore.problem.waiting import lacking

#: If more than one pod in this many stays out although a node has room for some of its kind, capacity decides and not
#: cost: shares, which know resources, come before a flow, which knows slots only.
_SCARCE = 50
#: So many neighbourhoods in a row without a gain end the search, or a tenth as many as there are nodes.
_PATIENCE = 6
#: One-by-one scheduling is tried up to so many pods.
_FEW = 3_000
#: CP-SAT's deterministic time for pods with constraints: some tenths of a second.
_EXACT_WORK = 0.1


class Portfolio:
    """Solves a problem step by step.

    Attributes:
        best: the best candidate so far, without what a search has gained since (see ``conclude``).
        solves, arcs: min-cost flows solved, and arcs of the largest.
        bound: a cost that no candidate goes below.
    """

    def __init__(self, problem: Problem, seed: int = 0, first: Candidate | None = None) -> None:
        """Begins with a candidate, or with nothing placed; there must be one if the problem must place some pods."""
        self._problem, self._seed = problem, seed
        self.solves = self.arcs = self.bound = 0
        self.best = problem.nothing_placed() if first is None else first
        self._search: LargeNeighbourhoodSearch | LocalSearch | None = None

    def run(self) -> Generator[None, None, None]:
        """Yields after each step."""
        problem = self._problem
        if not problem.demands or not len(problem.start.free):
            self.bound = self.best.cost
            return
        cost_matrix = problem.cost_matrix
        self.offer(fill(problem))
        self._raise_bound()
        yield
        placeable = cost_matrix.placeable
        pods = self._pods_of(placeable)
        if not pods or self.best.cost == self.bound:
            return
        sequential = self._where(lambda demand: demand.constraints.sequential)
        if self._unplaced_of(placeable & sequential) and pods <= _FEW:
            self.offer(constrained_first(problem))
            yield
        if self._unplaced_of(placeable) and pods <= _FEW:
            self.offer(one_by_one(problem))
            yield
        if self._unplaced_of(placeable & sequential) and not any(problem.must_place):
            yield from self._solve_exact()
        flowing, unconstrained = (
            placeable & self._where(lambda each: each.constraints.fits_flow),
            placeable & ~sequential,
        )
        scarce = (self._unplaced_of(flowing) - self._hopeless_of(flowing)) * _SCARCE > self._pods_of(flowing)
        if not scarce:
            yield from self._solve_by_flow(flowing)
        if LocalSearch.worthwhile(problem):
            yield from self._run_local_search()
        if self._unplaced_of(unconstrained) or scarce:
            yield from self._place_shares(unconstrained)
        if scarce:
            yield from self._solve_by_flow(flowing)
        if self._unplaced_of(unconstrained):
            yield from self._run_lns()

    def _raise_bound(self, *, shadow_prices: Float64s | None = None, marginal_costs: Int64s | None = None) -> None:
        """Computes a lower bound with nodes as full as the best candidate makes them."""
        bound = lower_bound(
            self._problem.cost_matrix,
            shadow_prices=shadow_prices,
            marginal_costs=marginal_costs,
            loads=self.best.capacity.loads(self._problem.demands),
        )
        self.bound = max(self.bound, bound)

    def _solve_exact(self) -> Generator[None, None, None]:
        """If pods with constraints that only forbid are few, CP-SAT decides them with all that compete with them."""
        if worth_solving(self._problem, self.best):
            subproblem = Subproblem.all(self._problem)
            found = solve_exact(self._problem, self.best, subproblem, work=_EXACT_WORK, seed=self._seed)
            if found is not None:
                self.offer(found)
            yield

    def _solve_by_flow(self, demands: Bools) -> Generator[None, None, None]:
        """A min-cost flow, which knows domains with capacities: pods with other rules stay where they are.

        Args:
            demands: bool[C], those that are left to decide.
        """
        if not demands.any():
            return
        flow = yield from solve_by_flow(self._problem, FixedPart.of(self._problem, self.best, demands), self.best)
        self.solves, self.arcs = flow.solves, flow.arcs
        self.offer(flow.candidate)
        self._raise_bound(marginal_costs=flow.marginal_costs)
        yield

    def _place_shares(self, demands: Bools) -> Generator[None, None, None]:
        """The linear program, which knows no constraints between pods: pods with any stay where they are.

        Args:
            demands: bool[C], those that are left to decide.
        """
        problem = self._problem
        relaxed = relax(problem.cost_matrix)
        if relaxed is None:
            return
        self._raise_bound(shadow_prices=relaxed.shadow_prices)
        yield
        if self._unplaced_of(demands):
            fixed = FixedPart.of(problem, self.best, demands)
            for candidate in rounded_candidates(problem, relaxed, fixed):
                self.offer(candidate)
                yield

    def _run_local_search(self) -> Generator[None, None, None]:
        """Pods that cost something beside each other move and change places."""
        self._search = search = LocalSearch(self._problem, self.best, self._seed)
        while self.best.cost - search.gain > self.bound and search.improve():
            yield
        self.conclude()

    def _run_lns(self) -> Generator[None, None, None]:
        self._search = search = LargeNeighbourhoodSearch(self._problem, self.best, self._seed)
        patience = max(_PATIENCE, len(self._problem.start.free) // 10)
        fruitless = 0
        while fruitless < patience and self.best.cost - search.gain > self.bound:
            before = search.gain
            # If small neighbourhoods no longer bring a gain, neighbourhoods twice as wide may.
            if not search.improve(wider=fruitless >= patience // 2):
                return
            fruitless = 0 if search.gain > before else fruitless + 1
            yield

    def conclude(self) -> Candidate:
        """The best candidate so far, with what a search has gained."""
        if self._search is not None and self._search.gain:
            self.offer(self._search.candidate())
            self._search = None
        return self.best

    def offer(self, candidate: Candidate) -> None:
        """Takes over a candidate that is cheaper than the best so far and places all that it must."""
        if candidate.cost < self.best.cost and not any(missing_pods(self._problem, candidate.commits)):
            self.best = candidate

    def _where(self, holds: Callable[[Demand], bool]) -> Bools:
        return np.array([holds(demand) for demand in self._problem.demands], dtype=np.bool_)

    def _hopeless_of(self, demands: Bools) -> int:
        """Pods that the limits of their own group keep out of every plan."""
        return sum(
            max(0, demand.count - demand.constraints.max_placeable(demand.counts))
            for demand, mine in zip(self._problem.demands, demands, strict=True)
            if mine and demand.constraints.limits
        )

    def _pods_of(self, demands: Bools) -> int:
        return sum(demand.count for demand, mine in zip(self._problem.demands, demands, strict=True) if mine)

    def _unplaced_of(self, demands: Bools) -> int:
        """Pods of these demands that a plan should place, and the best does not."""
        unplaced = unplaced_counts(self.best.commits, self._problem.demands)
        return sum(
            lacking(self._problem, at, self._problem.demands[at].count - unplaced[at])
            for at in np.nonzero(demands)[0].tolist()
        )
