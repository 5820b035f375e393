"""A portfolio of methods for a problem without atomic groups: each step leaves the best candidate at least as good.

A round may stop after any step. The number of steps reproduces its plan, so a wall clock may decide when to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools
from flowcore.planning.methods.constructive import (
    FixedPart,
    by_price,
    constrained_first,
    fill,
    interleaved,
    kube_scheduler_order,
    one_by_one,
)
from flowcore.planning.methods.cp_sat import solve_exact, worth_solving
from flowcore.planning.methods.flow import solve_by_flow
from flowcore.planning.methods.local_search import LocalSearch
from flowcore.planning.methods.one_by_one import is_quick
from flowcore.planning.methods.packing import pack, packable, worth_packing
from flowcore.planning.methods.relaxation import RelaxedSolution, relax
from flowcore.planning.methods.rounded_relaxation import roundings, shares_first
from flowcore.planning.methods.ruin_and_rebuild import RuinAndRebuild
from flowcore.planning.methods.without_penalties import WithoutPenalties
from flowcore.planning.problem.bounds.bounds import clearing_costs, first_bound, lower_bound
from flowcore.planning.problem.bounds.tangents import is_one_size
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.levels import key_of
from flowcore.planning.problem.objective import open_counts, surplus_of
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.waiting import lacking, without_partial

#: If more than one pod in this many stays out although a node has room for some of its kind, capacity decides and not
#: cost: a flow, which knows slots only, comes after all that knows resources.
_SCARCE = 50
#: If pods stay out, up to this many pods are placed one by one in the order of their price. With more pods this step
#: takes long.
_FEW_BY_PRICE = 3_000
#: Up to this number of pods a round ends once its plan is close to its bound: later steps cost more than they save.
_SMALL = 1_000
#: CP-SAT's deterministic time for packing: a tenth of a second, then twice as much if that was too short.
_PACKING_WORK = (0.05, 0.1)
#: A bound is close to a cost if at most one part in this number lies between them: 3 %. At that gap flows, classes
#: and searches lower the cost by 0.02 to 0.2 %, and a better bound costs more time than all other steps together.
_CLOSE = 33
#: CP-SAT's deterministic time for pods with constraints: some tenths of a second.
_EXACT_WORK = 0.1


class Portfolio:
    """Solves a problem step by step.

    Attributes:
        best: the best candidate so far, without what a search has gained since (see ``conclude``).
        solves, arcs: min-cost flows solved, and arcs of the largest.
        bound: a cost that no candidate goes below.
        improved_by: methods whose candidate was better than the best before.
        relaxed: the problem in fractions, or that without penalties, if it was solved so.
    """

    def __init__(
        self,
        problem: Problem,
        seed: int = 0,
        first: Candidate | None = None,
        relaxed: RelaxedSolution | None = None,
    ) -> None:
        """Begins with a candidate, or with nothing placed; there must be one if the problem must place some pods.

        Args:
            relaxed: the round in fractions, if it is known.
        """
        self._problem, self._seed, self._first = problem, seed, first
        self.solves = self.arcs = self.bound = 0
        self.improved_by = set[str]()
        self.best = problem.nothing_placed() if first is None else first
        #: The round in fractions, and whether it was tried.
        self._relaxation: RelaxedSolution | None = None
        self._has_relaxed, self._known = False, relaxed
        self.relaxed: list[RelaxedSolution] = []
        self._search: RuinAndRebuild | LocalSearch | None = None
        #: What of its gain is in the best candidate already.
        self._taken = 0
        #: Whether ``construct`` has begun: it is run once.
        self._has_begun = False
        #: Whether shares come right after fill, and one by one after all programs.
        self._is_floor_late = False
        #: The last candidate that was built in one go, and what the last shares were placed beside.
        self._built = self.best
        self._shared_beside: tuple[Commit, ...] | None = None
        #: While it is being solved: the problem without penalties, its portfolio, and the last of its candidates that
        #: was compared with the best.
        self._relaxed: tuple[WithoutPenalties, Portfolio] | None = None
        self._compared: Candidate | None = None

    def run(self) -> Generator[None, None, None]:
        """Yields after each step."""
        yield from self.construct()
        if self._is_good_enough:
            return
        if WithoutPenalties.any(self._problem):
            yield from self._solve_with_penalties()
            return
        yield from self.decide()
        yield from self.search()

    def construct(self) -> Generator[None, None, None]:
        """Candidates that are built in one go; yields after each. A second time nothing is left to do."""
        problem = self._problem
        if self._has_begun:
            return
        self._has_begun = True
        if not problem.demands or not len(problem.start.free):
            self.bound = self.best.cost
            return
        placeable = problem.cost_matrix.placeable
        pods = _pods_of(self._problem, placeable)
        if pods > _FEW_BY_PRICE and self._problem.runs("shares") and self._is_for_shares:
            self._relax()
        shares_come_first = self._relaxation is not None
        if self._relaxation is not None:
            self.offer(shares_first(problem, self._relaxation))
            for _ in self._rebuild("room"):
                pass  # within the first step
        elif self._problem.runs("fill"):
            self.offer(fill(problem))
        self._first_bound()
        if pods > _FEW_BY_PRICE and not self._is_solved:
            self._relax()
        self._built = self.best
        # If room is short for very many pods, what knows the relaxation comes first; it does not know penalties.
        scarce = pods > _FEW_BY_PRICE and not self._is_solved and self._is_scarce
        self._is_floor_late = scarce and not WithoutPenalties.any(problem)
        has_shares = False
        if self._is_floor_late and not shares_come_first:
            # Within the first step: fill alone leaves far more, and the budget may end here.
            for _ in self._place_shares(self._unconstrained, self.best):
                has_shares = True
                yield
        if not has_shares:
            yield  # without shares, as where the round in fractions failed, the first step ends with fill
        if self._is_solved:
            return
        builders: list[tuple[str, Callable[[], Candidate]]] = []
        if self._is_floor_late or not is_quick(problem):
            # Bounds are rounded down, by less than 1 for each pod.
            if self.best.cost > self.bound + pods:
                builders.append(("by turns", partial(interleaved, problem)))
        elif pods > 1:
            builders.append(("one by one", partial(one_by_one, problem, kube_scheduler_order(problem))))
        if self._unplaced_of(placeable & self._sequential) and pods <= _FEW_BY_PRICE:
            builders.append(("rules first", partial(constrained_first, problem)))
        if self._unplaced_of(placeable) and pods <= _FEW_BY_PRICE:
            order = by_price(problem.demands, [demand.count for demand in problem.demands])
            builders.append(("one by one", partial(one_by_one, problem, order)))
        for turn, (method, build) in enumerate(builders):
            if self._problem.runs(method):
                self._built = build()
                self.offer(self._built)
                yield
            # The others are for pods that stay out.
            if not turn and not self._unplaced_of(placeable):
                break
        if self._is_good_enough:
            return
        if self._relaxation is None and not self._is_close and not WithoutPenalties.any(problem):
            self._relax()
            yield
        if not self._is_scarce:
            yield from self._rebuild("class")

    def decide(self) -> Generator[None, None, None]:
        """Flows, and linear and integer programs over all pods; yields after each step."""
        if self._is_good_enough:
            return
        if self._are_preferring_pods_left:
            yield from self._solve_with_penalties()
            return
        problem, flowing, unconstrained = self._problem, self._flowing, self._unconstrained
        if not any(problem.must_place):
            yield from self._solve_exact()
        yield from self._pack(unconstrained & packable(problem))
        if not self._is_scarce:
            yield from self._solve_by_flow(flowing)
        if self._unplaced_of(unconstrained):
            yield from self._place_shares(unconstrained, self._built if self._is_floor_late else self.best)
        if self._is_floor_late and is_quick(problem) and self._problem.runs("one by one"):
            self.offer(one_by_one(problem, kube_scheduler_order(problem)))
            yield
        if self._unplaced_of(unconstrained):
            yield from self._rebuild("room", "exchange")

    def search(self) -> Generator[None, None, None]:
        """Improves the best candidate; yields after each step."""
        if self._is_good_enough:
            return
        if self._unplaced_of(self._unconstrained):
            yield from self._rebuild("nodes", "room", "exchange")
        if self._is_scarce:
            yield from self._solve_by_flow(self._flowing)
        yield from self._rebuild("class")

    @property
    def _is_for_shares(self) -> bool:
        """Whether the round in fractions says more about the first plan than the order of the queue does.

        It does not know levels of priority, nor what pods cost beside each other. Pods of one size need no shares.
        """
        demands = self._problem.demands
        one_priority = len({demand.group.pod_class.priority for demand in demands}) == 1
        return one_priority and not is_one_size(demands) and not WithoutPenalties.any(self._problem)

    @property
    def _is_solved(self) -> bool:
        return self.best.cost == self.bound or not _pods_of(self._problem, self._problem.cost_matrix.placeable)

    @property
    def _is_good_enough(self) -> bool:
        """Whether no more steps are worth their time."""
        small = _pods_of(self._problem, self._problem.cost_matrix.placeable) <= _SMALL
        return self._is_solved or (small and self._is_close)

    @property
    def _are_preferring_pods_left(self) -> bool:
        """Whether room is short for pods that prefer to be near others or apart: few methods know that."""
        preferring = _where(self._problem, WithoutPenalties.any_compared)
        return bool(self._unplaced_of(self._problem.cost_matrix.placeable & preferring))

    @property
    def _is_scarce(self) -> bool:
        """Whether capacity decides and not cost."""
        flowing = self._flowing
        missing = self._unplaced_of(flowing) - _hopeless_of(self._problem, flowing)
        return missing * _SCARCE > _pods_of(self._problem, flowing)

    @property
    def _sequential(self) -> Bools:
        return _where(self._problem, lambda demand: demand.constraints.sequential)

    @property
    def _unconstrained(self) -> Bools:
        return self._problem.cost_matrix.placeable & _where(
            self._problem, lambda demand: demand.constraints.binds_nothing or demand.constraints.only_limits
        )

    @property
    def _flowing(self) -> Bools:
        return self._problem.cost_matrix.placeable & _where(self._problem, lambda demand: demand.constraints.fits_flow)

    def _solve_with_penalties(self) -> Generator[None, None, None]:
        """Pods cost something beside each other, or pods stay out that prefer to be near others or apart.

        All methods decide the round as if they did not. Then local search, which leaves pending pods alone, improves
        the best plan by its true cost.
        """
        yield from self._solve_by_flow(self._flowing)
        penalties = WithoutPenalties(self._problem, comparisons=self._are_preferring_pods_left)
        first = None if self._first is None else penalties.remove(self._first)
        relaxed = Portfolio(penalties.problem, self._seed, first)
        relaxed.improved_by = self.improved_by
        self._relaxed, self._compared = (penalties, relaxed), relaxed.best
        for method in (relaxed.construct, relaxed.decide, relaxed.search):
            for _ in method():
                self._compare_relaxed()
                yield
        self._compare_relaxed()
        self.solves, self.arcs = self.solves + relaxed.solves, max(self.arcs, relaxed.arcs)
        self._relaxed = None
        if self._problem.runs("local search") and LocalSearch.worthwhile(self._problem):
            yield from self._search_with(LocalSearch(self._problem, self.best, self._seed))

    def _compare_relaxed(self) -> None:
        """Takes over the best that is known without penalties, if it is cheaper with them too."""
        if self._relaxed is None:
            return
        penalties, relaxed = self._relaxed
        if penalties.keeps_bounds:
            self.bound = max(self.bound, relaxed.bound)
        elif not self.relaxed and relaxed.relaxed:
            self._bound_by(relaxed.relaxed[0])
        self.relaxed = self.relaxed or relaxed.relaxed
        conclusion = relaxed.conclude()
        if conclusion is not self._compared:
            self._compared = conclusion
            self.offer(penalties.restore(conclusion))

    def _relax(self) -> None:
        """The round in fractions: its prices give a bound, and say later what pods are worth."""
        if self._has_relaxed:
            return  # what has failed would fail again
        self._has_relaxed = True
        self._relaxation = relaxed = self._known or relax(self._problem.cost_matrix)
        if relaxed is not None:
            self.relaxed.append(relaxed)
            self._bound_by(relaxed)

    def _bound_by(self, relaxed: RelaxedSolution) -> None:
        """What no plan costs less than, by the prices of a round in fractions."""
        matrix = self._problem.cost_matrix
        bound = lower_bound(matrix, shadow_prices=relaxed.shadow_prices, loads=relaxed.loads)
        self.bound = max(self.bound, bound)
        if matrix.shared_limits:
            # The round in fractions does not know these: then room may have no price at all.
            self.bound = max(self.bound, lower_bound(matrix, loads=relaxed.loads))

    @property
    def _is_close(self) -> bool:
        """Whether there is little to gain of what any plan decides, and no pod waits that could be placed."""
        placeable = self._problem.cost_matrix.placeable
        hopeless = sum(int(self._problem.demands[number].prices.sum()) for number in np.nonzero(~placeable)[0].tolist())
        if surplus_of(self._problem.demands):
            return False  # which ways pods take may be worth less than that
        near = (self.best.cost - self.bound) * _CLOSE <= self.best.cost - hopeless
        return near and not self._unplaced_of(placeable)

    def _first_bound(self) -> None:
        """What each pod pays by itself; if all count for the same, what the best candidate's dearest one pays."""
        matrix = self._problem.cost_matrix
        self.bound = max(self.bound, first_bound(matrix))
        # Of several demands it costs a pass over each of them, and pods that stay out would have other prices. A second
        # plan of pods that are placed in turn costs more than the pass, and is not made if this one is the cheapest.
        several, close = len(matrix.demands) > 1, self._is_good_enough and not self._sequential.any()
        if self._is_solved or (several and (close or self._unplaced_of(matrix.placeable))):
            return
        clearing = clearing_costs(matrix, self.best.capacity)
        if clearing is None:
            return
        bound = lower_bound(matrix, marginal_costs=clearing)
        # A small round ends near its bound (``_is_close``). A flow may still save 2 %, unless the plan is the cheapest.
        if not several or bound == self.best.cost or _pods_of(self._problem, matrix.placeable) > _SMALL:
            self.bound = max(self.bound, bound)

    def _solve_exact(self) -> Generator[None, None, None]:
        """If pods with ports or constraints that limit domains are few, CP-SAT decides them with all others."""
        if self._problem.runs("rules by CP-SAT") and worth_solving(self._problem, self.best):
            solution = solve_exact(self._problem, self.best, work=_EXACT_WORK, seed=self._seed)
            if solution is not None:
                self.offer(solution)
            yield

    def _pack(self, demands: Bools) -> Generator[None, None, None]:
        """If pods stay out of a problem that is small enough, CP-SAT places as many as there can be.

        Args:
            demands: bool[C], those that are left to decide.
        """
        if not (self._problem.runs("packing") and self._unplaced_of(demands) and worth_packing(self._problem, demands)):
            return
        for work in _PACKING_WORK:
            packing = pack(self._problem, self.best, demands, work=work, seed=self._seed)
            if packing.candidate is not None:
                self.offer(packing.candidate)
            yield
            if packing.proven:
                break

    def _rebuild(self, *draws: str) -> Generator[None, None, None]:
        """Takes pods out of the best candidate and builds again; yields after each step."""
        if self._problem.runs("ruin and rebuild"):
            prices = None if self._relaxation is None else self._relaxation.shadow_prices
            self._search, self._taken = RuinAndRebuild(self._problem, self.best, self._seed, prices), 0
            for _ in self._search.run(*draws):
                if self._promised_cost <= self.bound:
                    break
                yield
            self.conclude()

    def _search_with(self, search: LocalSearch) -> Generator[None, None, None]:
        """Improves the best candidate; yields after each step."""
        self._search, self._taken = search, 0
        while self._promised_cost > self.bound and search.improve():
            yield
        self.conclude()

    def _solve_by_flow(self, demands: Bools) -> Generator[None, None, None]:
        """A min-cost flow, which knows domains with capacities: pods with other rules stay where they are.

        Args:
            demands: bool[C], those that are left to decide.
        """
        if not (self._problem.runs("flow") and demands.any()):
            return
        flow = yield from solve_by_flow(self._problem, FixedPart.of(self._problem, self.best, demands), self.best)
        self.solves, self.arcs = flow.solves, flow.arcs
        self.offer(flow.candidate)
        if is_one_size(self._problem.demands):
            bound = lower_bound(self._problem.cost_matrix, marginal_costs=flow.marginal_costs)
            self.bound = max(self.bound, bound)
        yield

    def _place_shares(self, demands: Bools, beside: Candidate) -> Generator[None, None, None]:
        """Shares of the round in fractions, which knows no rules between pods: pods with more than limits stay.

        Args:
            demands: bool[C], those that are left to decide.
            beside: the candidate whose other pods stay.
        """
        problem, relaxed = self._problem, self._relaxation
        if relaxed is not None and self._problem.runs("shares") and self._unplaced_of(demands):
            fixed = FixedPart.of(problem, beside, demands)
            if fixed.commits == self._shared_beside:
                return
            self._shared_beside = fixed.commits
            for build in roundings(problem, relaxed, fixed):
                before = self.best
                self.offer(build())
                if fixed.commits and self.best is not before:
                    self.improved_by.add(beside.method)
                yield

    def conclude(self) -> Candidate:
        """The best candidate so far, with what a search has gained."""
        # The search may go on: what it gains later counts too.
        if self._search is not None and self._search.gain > self._taken:
            self._taken = self._search.gain
            self.offer(self._search.candidate())
        self._compare_relaxed()
        return self.best

    @property
    def _promised_cost(self) -> int:
        """Cost of the best candidate with what a search has gained since."""
        return self.best.cost - (0 if self._search is None else self._search.gain - self._taken)

    def offer(self, candidate: Candidate) -> None:
        """Takes over a candidate that is better than the best so far."""
        candidate = without_partial(self._problem, candidate)
        if key_of(self._problem, candidate) < key_of(self._problem, self.best):
            self.improved_by.add(candidate.method)
            self.best = candidate

    def _unplaced_of(self, demands: Bools) -> int:
        """Pods of these demands, bool[C], that a plan should place, and the best candidate does not."""
        problem, unplaced = self._problem, open_counts(self.best.commits, self._problem.demands)
        return sum(
            lacking(problem, number, problem.demands[number].count - unplaced[number])
            for number in np.nonzero(demands)[0].tolist()
        )


def _where(problem: Problem, holds: Callable[[Demand], bool]) -> Bools:
    """bool[C]: demands that satisfy a condition."""
    return np.array([holds(demand) for demand in problem.demands], dtype=np.bool_)


def _pods_of(problem: Problem, demands: Bools) -> int:
    """Pods of these demands, bool[C]."""
    return sum(problem.demands[number].count for number in np.nonzero(demands)[0].tolist())


def _hopeless_of(problem: Problem, demands: Bools) -> int:
    """Pods of these demands, bool[C], that the limits of their own group keep out of every plan."""
    return sum(
        max(0, demand.count - demand.constraints.max_placeable(demand.counts))
        for demand, is_counted in zip(problem.demands, demands, strict=True)
        if is_counted and demand.constraints.limits
    )
