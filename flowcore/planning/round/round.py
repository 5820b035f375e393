"""A round: a snapshot in, a plan out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs import MODELS, CostModel
from flowcore.costs.shares.additions import with_plan
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.planning.declared_networks.network_pass import SolveNetworks
from flowcore.planning.evictions import plan_evictions
from flowcore.planning.methods.admission import Admission, complete
from flowcore.planning.methods.constructive import kube_scheduler_order, one_by_one
from flowcore.planning.methods.cp_sat import Subproblem, solve_exact
from flowcore.planning.problem.demands.charging import Charge, not_charged
from flowcore.planning.problem.passes import (
    AdmittedDemands,
    CompileConstraints,
    CompileWorkloadKinds,
    FormConstraintGangs,
    KeepQueueLimits,
    PlaceReplacements,
    RestrictToGangDomains,
    WithoutAtomicGroups,
    apply_all,
    invert_all,
)
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.problem import Problem, is_better
from flowcore.planning.problem.result import RoundResult
from flowcore.planning.problem.waiting import without_dear_groups
from flowcore.planning.round.backfill_reservation import ReserveBackfill
from flowcore.planning.round.build_result import build_result
from flowcore.planning.round.node_prices import NodePrices, node_prices, priced_demands
from flowcore.planning.round.parts import solver_of
from flowcore.planning.round.pods_left import left_at_least
from flowcore.planning.round.portfolio import Portfolio
from flowcore.rules.verdicts import VerdictCache

DEFAULT_POLICIES: Mapping[str, Policy] = {BUILT_IN.name: BUILT_IN}
#: Steps of a round without a budget: every quick method, and some neighbourhoods.
DEFAULT_STEPS = 40
#: CP-SAT's deterministic time for all atomic groups at once, at first and in the end: tenths of a second, a second.
EXACT_WORK = (0.1, 0.5)
#: The same for some groups on some nodes, and how many such subproblems in a row may bring no gain.
SUBPROBLEM_WORK, PATIENCE = 0.02, 8


class Round:
    """One round: take steps for as long as there is time, then ask for the result.

    Snapshot, policies, seed and the number of steps determine the result.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        policies: Mapping[str, Policy] = DEFAULT_POLICIES,
        models: Mapping[str, CostModel] = MODELS,
        *,
        cache: VerdictCache | None = None,
        seed: int = 0,
        charge: Charge = not_charged,
    ) -> None:
        """Takes the arguments of ``run_round``, and ``charge``, which is called with the pods that work was for."""
        self._passes = (
            CompileConstraints(),
            CompileWorkloadKinds(),
            FormConstraintGangs(),
            KeepQueueLimits(),
            PlaceReplacements(),
            SolveNetworks(seed),
            RestrictToGangDomains(),
            ReserveBackfill(),
        )
        self._problem = apply_all(self._passes, Problem(snapshot, policies, models, cache, charge=charge))
        self._begun, self._seed = snapshot, seed
        self._admission = Admission(self._problem) if self._problem.atomic_groups.all else None
        #: Once it is decided which groups are placed: the pass that takes the other groups' pods out.
        self._admitted: AdmittedDemands | None = None
        self._candidate: Candidate
        self._portfolio = solver_of(self._problem, seed)
        self._steps = 0
        #: Gains before other groups were admitted.
        self._earlier_gains = Counter[str]()
        self._generator = self._run()

    @property
    def groups(self) -> Sequence[Sequence[PendingPod]]:
        """The pods that were planned together, but for those that were decided before the rest of the round."""
        return [demand.group.pods for demand in self._problem.demands]

    def step(self) -> bool:
        """Takes one step; False when nothing is left to do. Every step leaves a plan at least as good."""
        try:
            next(self._generator)
        except StopIteration:
            return False
        self._steps += 1
        return True

    @property
    def gains(self) -> Counter[str]:
        """By how much each method lowered the cost of the best plan so far; the first one, from nothing placed."""
        admission = Counter[str]() if self._admission is None else self._admission.gains
        return self._earlier_gains + admission + self._portfolio.gains

    @property
    def is_close(self) -> bool:
        """Whether every pod has a node, and no plan costs less by more than one for each pod.

        Prices are whole numbers, so that much is mostly rounding.
        """
        candidate, bound = self._best_candidate()
        placed = sum(commit.count for commit in candidate.commits)
        missing = placed < sum(demand.count for demand in self._problem.demands) or candidate.decided.unplaced
        return not missing and candidate.cost - bound <= placed

    def _run(self) -> Generator[None, None, None]:
        """Decides which groups are placed, then where all pods go."""
        admission = self._admission
        if admission is not None:
            yield from admission.run()
            self._adopt(admission.best)
        yield from self._portfolio.run()
        if admission is None:
            return
        # Other places for pods may have made room for another group. Small problems are solved exactly.
        yield from self._reconsider(0, Subproblem.all(self._problem), EXACT_WORK[0])
        fruitless, number = 0, 1
        while fruitless < PATIENCE:
            cost = self._candidate.cost
            subproblem = Subproblem.sampled(self._problem, self._candidate, self._seed + number)
            yield from self._reconsider(number, subproblem, SUBPROBLEM_WORK)
            fruitless, number = 0 if self._candidate.cost < cost else fruitless + 1, number + 1
        yield from self._reconsider(number, Subproblem.all(self._problem), EXACT_WORK[1])

    def _reconsider(self, number: int, subproblem: Subproblem, work: float) -> Generator[None, None, None]:
        """Decides a part of the groups again, and where all pods go if that changes the groups."""
        known = complete(self._problem, self._best_candidate()[0])
        solution = solve_exact(self._problem, known, subproblem, work=work, seed=self._seed + number)
        changed = solution is not None and is_better(self._problem, solution, known)
        if not number or changed or bool((known.admitted != self._candidate.admitted).any()):
            self._adopt(solution if solution is not None and changed else known)
            yield
            yield from self._portfolio.run()
        else:
            yield

    def _adopt(self, candidate: Candidate) -> None:
        """From now on the groups that this candidate admits are placed, and no others."""
        if self._admitted is not None:
            self._earlier_gains += self._portfolio.gains
            if candidate.cost < self._candidate.cost:
                self._earlier_gains[candidate.method] += self._candidate.cost - candidate.cost
        self._candidate = candidate
        self._admitted = AdmittedDemands(self._problem, candidate)
        problem = self._admitted.apply(self._problem)
        self._portfolio = solver_of(problem, self._seed, self._admitted.restrict(candidate, problem))

    def _best_candidate(self) -> tuple[Candidate, int]:
        """The best candidate so far, and a cost that none goes below."""
        if self._admission is None:
            return self._portfolio.conclude(), self._portfolio.bound
        if self._admitted is None:
            return self._admission.best, self._admission.bound
        # Groups were admitted before it was known where their pods go.
        best = without_dear_groups(self._problem, self._admitted.invert(self._portfolio.conclude()))
        return best, self._admission.bound

    def result(self) -> RoundResult:
        """The best plan so far."""
        candidate, bound = self._best_candidate()
        portfolio = self._portfolio
        if self._admission is not None and bound < candidate.cost:
            bound = max(bound, self._admission.bound_by(portfolio.relaxed))
        candidate = invert_all(self._passes, candidate)
        relaxed = [*portfolio.relaxed, *(() if self._admission is None else self._admission.relaxed)]
        result = build_result(
            self._problem,
            candidate,
            bound,
            relaxed=bool(relaxed),
            steps=self._steps,
            solves=portfolio.solves,
            arcs=portfolio.arcs,
        )
        result = plan_evictions(self._problem, result, candidate, relaxed)
        result = replace(result, left_at_least=left_at_least(self._problem, self._begun, result.unplaced))
        queues = self._problem.snapshot.queues
        if queues is None:
            return result
        placed, evicted = (each.pod for each in result.placements), (each.pod for each in result.evictions)
        return replace(result, after=replace(result.after, queues=with_plan(queues, placed, evicted)))

    def node_prices(self, *, bound: bool = False) -> Iterator[NodePrices]:
        """What nodes cost one more pod after the plan, for pods that kube-scheduler binds and, ``bound``, that we bind.

        Pods of gangs have no prices.
        """
        demands = priced_demands(self._problem, bound=bound)
        if demands:
            candidate, _ = self._best_candidate()
            yield from node_prices(self._problem, demands, invert_all(self._passes, candidate))


def run_round(
    snapshot: Snapshot,
    policies: Mapping[str, Policy] = DEFAULT_POLICIES,
    models: Mapping[str, CostModel] = MODELS,
    *,
    cache: VerdictCache | None = None,
    steps: int = DEFAULT_STEPS,
    seed: int = 0,
) -> RoundResult:
    """Plans all pending pods of a snapshot at once.

    Args:
        snapshot: nodes, what is taken, what waits. Each pending pod's ``policy`` must be a key of ``policies``.
        models: cost models by name; every model that a policy names must be there.
        cache: verdicts of earlier rounds; it makes a round faster and changes nothing else.
        steps: how many steps to take at most, at least one.
        seed: of the random choices of the search.

    Returns:
        A plan that places each pending pod or gives a reason why not. It never overcommits a resource and never breaks
        a filter; a pod that stays pending fits on no node beside the placements.
    """
    this = Round(snapshot, policies, models, cache=cache, seed=seed)
    for _ in range(max(1, steps)):
        if not this.step():
            break
    return this.result()


def run_one_by_one(
    snapshot: Snapshot,
    policies: Mapping[str, Policy] = DEFAULT_POLICIES,
    models: Mapping[str, CostModel] = MODELS,
) -> RoundResult:
    """The same pods with the same filters and costs, placed one after the other: by priority, then by age; no gangs.

    This is kube-scheduler's order (plugins/queuesort): each pod takes the cheapest node at its turn.
    """
    passes = CompileConstraints(), CompileWorkloadKinds(), PlaceReplacements(), WithoutAtomicGroups()
    problem = apply_all(passes, Problem(snapshot, policies, models))
    portfolio = Portfolio(problem)
    portfolio.offer(one_by_one(problem, kube_scheduler_order(problem)))
    return build_result(problem, invert_all(passes, portfolio.best), bound=0, relaxed=False, steps=0)
