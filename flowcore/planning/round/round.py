"""A round: a snapshot in, a plan out."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, PendingPod, Snapshot
from flowcore.costs import MODELS, CostModel
from flowcore.costs.shares.additions import with_plan
from flowcore.model.policies import BUILT_IN, OBSERVED, Policy
from flowcore.planning.deferred_resizes import with_resizes
from flowcore.planning.drawn_networks.compile_networks import CompileNetworks
from flowcore.planning.drawn_networks.pods_together import FormNetworkGangs
from flowcore.planning.drawn_networks.twins import FormTwins, by_way
from flowcore.planning.drawn_networks.unmet_minimums import NOTHING_UNMET, RefuseNetworks, Unmet, placed_as_one
from flowcore.planning.evictions import plan_evictions
from flowcore.planning.evictions.eligibility import may_preempt
from flowcore.planning.gangs.claim_gangs import FormClaimGangs
from flowcore.planning.gangs.pods_to_come import without_gangs_before_room
from flowcore.planning.methods.admission import Admission, complete
from flowcore.planning.methods.constructive import kube_scheduler_order, one_by_one
from flowcore.planning.methods.cp_sat import solve_exact, solve_with_members, solve_without_preferences
from flowcore.planning.methods.level_order import in_level_order
from flowcore.planning.methods.relaxation import RelaxedSolution
from flowcore.planning.plan_key import PlanKey
from flowcore.planning.problem.bounds.bounds import first_bound
from flowcore.planning.problem.demands.charging import Charge, not_charged
from flowcore.planning.problem.levels import (
    AssignLevels,
    as_candidate_of,
    compete,
    key_of,
    with_steep_prices,
)
from flowcore.planning.problem.objective import open_counts
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
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.result import Placement, RoundResult, Unplaced, without_columns
from flowcore.planning.problem.waiting import without_dear_groups
from flowcore.planning.round.backfill_reservation import ReserveBackfill, history_after
from flowcore.planning.round.build_result import build_result
from flowcore.planning.round.node_prices import NodePrices, node_prices, of_pods, priced_demands
from flowcore.planning.round.parts import solver_of
from flowcore.planning.round.pods_left import left_at_least
from flowcore.planning.round.portfolio import Portfolio
from flowcore.planning.round.unplaced_reasons import with_causes_beside_room
from flowcore.planning.saying import Say, unguarded
from flowcore.rules.devices.columns.conflicts import Preemption
from flowcore.rules.devices.columns.with_columns import with_columns
from flowcore.rules.filters import run_filters
from flowcore.rules.verdicts import VerdictCache
from flowcore.rules.volumes import chosen_for

DEFAULT_POLICIES: Mapping[str, Policy] = {policy.name: policy for policy in (BUILT_IN, OBSERVED)}
#: Steps of a round without a budget: every quick method, and some of ruin and rebuild.
DEFAULT_STEPS = 40
#: CP-SAT's deterministic time for all atomic groups at once, at first and in the end: tenths of a second, a second.
EXACT_WORK = (0.1, 0.5)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What more steps may bring to the best plan so far; pods that were decided before the rest are not counted.

    Attributes:
        is_close: every pod has a node, and no plan costs less by more than one for each pod.
        placed: pods that it places.
        left: pods that it leaves and that another plan may place. What a demand or a group rules out by itself is not
            counted: pods that no node has room for, more of a kind than its own rules let in, gangs larger than that.
    """

    is_close: bool
    placed: int
    left: int


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
        without: frozenset[str] = frozenset(),
        say: Say = unguarded,
        unmet: Unmet = NOTHING_UNMET,
    ) -> None:
        """Takes the arguments of ``run_round``, and ``charge``, which is called with the pods that work was for.

        ``without``: names of methods that do not run (``methods.table``). ``say``: computes each part of what is said.
        ``unmet``: what networks must have and did not get in earlier plans of the round.
        """
        self._unmet = unmet
        self._again = partial(
            Round, snapshot, policies, models, cache=cache, seed=seed, charge=charge, without=without, say=say
        )
        snapshot, now = with_resizes(without_gangs_before_room(snapshot)), snapshot.now
        preemption = Preemption(lambda pod: may_preempt(pod, policies[pod.policy], now), _passing_without_devices)
        self._columns = with_columns(snapshot, charge, preemption)
        snapshot = self._columns.snapshot
        if cache is not None:
            cache.follow_columns(self._columns.begun, snapshot)
        self._replacements = PlaceReplacements(_first_left, by_way)
        self._twins, self._network_gangs = FormTwins(), FormNetworkGangs()
        self._passes = (
            CompileNetworks(unmet.closed),
            CompileConstraints(),
            CompileWorkloadKinds(),
            FormConstraintGangs(),
            FormClaimGangs(),
            KeepQueueLimits(),
            RefuseNetworks(unmet),
            self._replacements,
            self._twins,
            self._network_gangs,
            RestrictToGangDomains(),
            AssignLevels(),
            ReserveBackfill(),
        )
        self._problem = apply_all(
            self._passes, Problem(snapshot, policies, models, cache, charge=charge, without=without, say=say)
        )
        #: The problem in which each pod is there once.
        self._of_pods = self._twins.before or self._problem
        #: What is searched: the problem, or the same with steep prices where levels compete for room.
        self._searched = self._problem
        #: What was known of the bound before prices became steep: it is about those of the problem.
        self._bound_before: int | None = None
        self._is_bounded = False
        self._relaxed_before: list[RelaxedSolution] = []
        #: The last plan that was found at steep prices, and the same at the prices of the problem.
        self._at_own_prices: tuple[Candidate, Candidate] | None = None
        #: The last plan that was put in the order of levels, and the best that any gave.
        self._ordered: tuple[Candidate, Candidate] | None = None
        self._begun, self._seed = snapshot, seed
        self._admission = Admission(self._problem) if self._problem.atomic_groups.all else None
        #: The admission whose bounds hold: that at the prices of the problem.
        self._bounding = self._admission
        #: Once it is decided which groups are placed: the pass that takes the other groups' pods out.
        self._admitted: AdmittedDemands | None = None
        self._candidate: Candidate
        self._portfolio = solver_of(self._problem, seed)
        self._steps = 0
        #: What the admission and the portfolio at hand do not tell of ``improved_by``.
        self._improved_before = set[str]()
        self._generator = self._run()

    @property
    def groups(self) -> Sequence[Sequence[PendingPod]]:
        """The pods that were planned together, but for those that were decided before the rest of the round."""
        return [demand.group.pods for demand in self._of_pods.demands]

    @property
    def key(self) -> PlanKey:
        """What the best plan so far is compared by."""
        return key_of(self._problem, self._best_candidate())

    def step(self) -> bool:
        """Takes one step; False when nothing is left to do. Every step leaves a plan at least as good."""
        try:
            next(self._generator)
        except StopIteration:
            return False
        self._steps += 1
        return True

    def bound_by(self, bound: int) -> None:
        """Takes over what no plan costs less than, of a problem in which more was open: its own bounds do not hold."""
        self._bound_before, self._is_bounded = bound + self._twins.surplus, True

    @property
    def improved_by(self) -> set[str]:
        """Methods whose plan was better than the best before it."""
        admission = set[str]() if self._admission is None else self._admission.improved_by
        return self._improved_before | admission | self._portfolio.improved_by

    @property
    def is_close(self) -> bool:
        """Whether every pod has a node, and no plan costs less by more than one for each pod.

        Prices are whole numbers, so that much is mostly rounding.
        """
        return self.outlook().is_close

    def outlook(self) -> Outlook:
        """What more steps may bring."""
        candidate = self._best_found()
        placed = sum(commit.count for commit in candidate.commits)
        missing = placed < sum(demand.count for demand in self._of_pods.demands) or candidate.decided.unplaced
        is_close = not missing and candidate.cost - self._bound <= placed
        return Outlook(is_close, placed, max(0, self._placeable - placed))

    @cached_property
    def _placeable(self) -> int:
        """Pods that some plan may place as far as each demand and each group tells by itself."""
        problem, groups = self._of_pods, self._of_pods.atomic_groups
        most = [demand.constraints.max_placeable(demand.counts) for demand in problem.demands]
        # One entry more for pods in no group, whose number is -1.
        hopeless = np.append(problem.unschedulable | (problem.required > np.array(most)).any(axis=1), [False])
        counts = [int(np.count_nonzero(~hopeless[group_of])) for group_of in groups.group_of]
        return sum(min(count, room) for count, room in zip(counts, most, strict=True))

    def _run(self) -> Generator[None, None, None]:
        """Decides which groups are placed, then where all pods go."""
        yield from self._begin()
        if self._admission is not None and self._problem.runs("gangs by CP-SAT"):
            yield from self._choose_members()
        if self._problem.by_levels:
            yield from self._portfolio.construct()
            if compete(self._problem, self._best_found()):
                yield from self._search_by_levels()
        yield from self._portfolio.run()
        if self._admission is not None:
            yield from self._reconsider_groups()

    def _reconsider_groups(self) -> Generator[None, None, None]:
        """Decides again which groups are placed: other places for pods may have made room for another group."""
        best = self._best_searched()
        if best.admitted.all() and not any(open_counts(best.commits, self._searched.demands)):
            return
        for number, work in enumerate(EXACT_WORK):
            yield from self._reconsider(number, work)

    def _begin(self, first: Candidate | None = None) -> Generator[None, None, None]:
        """Decides which groups are placed, if there are any.

        Args:
            first: a candidate to begin with.
        """
        if self._admission is None:
            return
        if first is not None:
            self._admission.offer(first)
        yield from self._admission.run()
        self._adopt(self._admission.best)

    def _choose_members(self) -> Generator[None, None, None]:
        """Has other pods make up gangs if that is better, and begins again with that."""
        problem = self._problem
        best = in_level_order(problem, self._candidate)
        if not any(open_counts(best.commits, problem.demands)):
            return
        searched = with_steep_prices(problem) if problem.by_levels else problem
        known = as_candidate_of(searched, best)
        solution = solve_with_members(searched, known, work=EXACT_WORK[0], seed=self._seed)
        yield
        if solution is None:
            return
        members, with_members = solution
        chosen = problem.with_members(members)
        with_members = in_level_order(chosen, as_candidate_of(chosen, with_members))
        if key_of(chosen, with_members) >= key_of(problem, best):
            return
        self._improved_before, self._ordered = self.improved_by, None
        self._problem = self._searched = chosen
        self._admission = self._bounding = Admission(chosen)
        self._admitted = None
        yield from self._begin(with_members)

    def _search_by_levels(self) -> Generator[None, None, None]:
        """Begins again with prices that rise steeply by level: levels compete for room, and a sum does not tell them.

        The bound stays: it is about the sum.
        """
        problem, best = self._problem, self._best_candidate()
        if self._admission is not None and self._problem.runs("gangs by CP-SAT"):
            # By the sum a gang may leave its domain for others, and find another one.
            solution = solve_exact(problem, best, work=EXACT_WORK[0], seed=self._seed)
            if solution is not None:
                best = min(best, in_level_order(problem, solution), key=partial(key_of, problem))
        self._improved_before = self.improved_by | {best.method}
        self._bound_before, self._relaxed_before = self._bound, self._relaxed
        self._ordered = best, best
        self._searched = steep = with_steep_prices(problem)
        first = as_candidate_of(steep, best)
        if self._admission is not None:
            self._admission, self._admitted = Admission(steep), None
        else:
            self._portfolio = solver_of(steep, self._seed, first)
        yield
        yield from self._begin(first)

    def _reconsider(self, number: int, work: float) -> Generator[None, None, None]:
        """Decides the groups again; and where all pods go, the first time and where the groups have changed."""
        problem = self._searched
        best = known = complete(problem, self._best_searched())
        for solve in (solve_exact, solve_without_preferences) if self._problem.runs("gangs by CP-SAT") else ():
            solution = solve(problem, known, work=work, seed=self._seed + number) if best is known else None
            if solution is not None and key_of(problem, solution) < key_of(problem, known):
                best = solution
        if not number or best is not known or bool((known.admitted != self._candidate.admitted).any()):
            self._adopt(best)
            yield
            yield from self._portfolio.run()
        else:
            yield

    def _adopt(self, candidate: Candidate) -> None:
        """From now on the groups that this candidate admits are placed, and no others."""
        if self._admitted is not None:
            self._improved_before |= self._portfolio.improved_by
            if key_of(self._searched, candidate) < key_of(self._searched, self._candidate):
                self._improved_before.add(candidate.method)
        self._candidate = candidate
        self._admitted = AdmittedDemands(self._searched, candidate)
        problem = self._admitted.apply(self._searched)
        # If nobody is left out, the round in fractions is the same.
        relaxed = self._admission.fine if self._admission is not None and candidate.admitted.all() else None
        self._portfolio = solver_of(problem, self._seed, self._admitted.restrict(candidate, problem), relaxed)

    def _best_candidate(self) -> Candidate:
        """The best candidate so far, in the order of levels; of equal ones the first that was found."""
        candidate = self._best_found()
        if self._ordered is None:
            self._ordered = candidate, in_level_order(self._problem, candidate)
        elif self._ordered[0] is not candidate:
            both = self._ordered[1], in_level_order(self._problem, candidate)
            self._ordered = candidate, min(both, key=partial(key_of, self._problem))
        return self._ordered[1]

    def _best_found(self) -> Candidate:
        """The best candidate that was found so far, at the prices of the problem."""
        candidate = self._best_searched()
        if self._searched is self._problem:
            return candidate
        if self._at_own_prices is None or self._at_own_prices[0] is not candidate:
            self._at_own_prices = candidate, as_candidate_of(self._problem, candidate)
        return self._at_own_prices[1]

    def _best_searched(self) -> Candidate:
        """The best candidate of what is searched."""
        if self._admission is None:
            return self._portfolio.conclude()
        if self._admitted is None:
            return self._admission.best
        # Groups were admitted before it was known where their pods go.
        return without_dear_groups(self._searched, self._admitted.invert(self._portfolio.conclude()))

    @property
    def _bound(self) -> int:
        """A cost that no candidate goes below."""
        if self._bound_before is not None:
            return self._bound_before
        return self._portfolio.bound if self._admission is None else self._admission.bound

    @property
    def _relaxed(self) -> list[RelaxedSolution]:
        """The round in fractions, as often as it was solved so."""
        admission = () if self._admission is None else self._admission.relaxed
        return [*self._portfolio.relaxed, *admission, *self._relaxed_before]

    def result(self) -> RoundResult:
        """The best plan so far; where it does not meet what networks must have, the same without them."""
        candidate, bound = self._best_candidate(), self._bound
        portfolio, relaxed, say = self._portfolio, self._relaxed, self._problem.say
        if self._bounding is not None and not self._is_bounded and bound < candidate.cost:
            by_gangs = partial(self._bounding.bound_by, portfolio.relaxed)
            bound = max(bound, say("The bound of the cost", by_gangs, bound))
        candidate = invert_all(self._passes, candidate)
        result = build_result(
            self._problem,
            candidate,
            bound,
            relaxed=bool(relaxed),
            steps=self._steps,
            solves=portfolio.solves,
            arcs=portfolio.arcs,
        )
        result = self._replacements.settle(plan_evictions(self._problem, result, candidate, relaxed))
        unmet = self._unmet.beside(self._begun, self._problem.policies, result)
        if unmet is not None:
            again = self._again(unmet=unmet)
            again.bound_by(bound - self._twins.surplus - self._twins.slack - self._network_gangs.slack)
            for _ in range(min(self._steps, DEFAULT_STEPS)):
                if not again.step():
                    break
            return again.result()
        holds = history_after(self._problem, result, candidate.held)
        result = replace(result, holds=holds)
        result = say("Why pods wait", partial(with_causes_beside_room, self._problem, result), result)
        result = self._twins.together(result)
        placements = placed_as_one(_with_volumes(result.placements, self._begun), self._problem.policies)
        result = replace(result, placements=placements)
        least = partial(left_at_least, self._of_pods, self._begun, result.unplaced)
        result = replace(result, left_at_least=say("What every plan leaves", least, None))
        result = without_columns(result, self._columns, self._problem.policies)
        queues = self._problem.snapshot.queues
        if queues is None:
            return result
        placed = (each.pod for each in result.placements)
        # A pod whose replacement has a node reserved counts for its queue as before.
        gone = (each.pod for each in result.evictions if not each.to)
        return replace(result, after=replace(result.after, queues=with_plan(queues, placed, gone)))

    def node_prices(self, *, bound: bool = False) -> Iterator[NodePrices]:
        """What nodes cost one more pod after the plan: one that kube-scheduler binds or, ``bound``, that we bind."""
        demands = priced_demands(self._problem, bound=bound)
        if demands:
            candidate = invert_all(self._passes, self._best_candidate())
            yield from of_pods(node_prices(self._problem, demands, candidate), self._twins.pod)


def _first_left(problem: Problem) -> Unplaced | None:
    """A pod that a quick plan of a problem leaves since it does not place all gangs; None: it does."""
    problem = apply_all((RestrictToGangDomains(), AssignLevels()), problem)
    admission = Admission(problem)
    admission.offer(admission.by_price())
    if admission.best.admitted.all():
        return None
    return build_result(problem, admission.best, 0, relaxed=False, steps=0).unplaced[0]


def _with_volumes(placements: tuple[Placement, ...], snapshot: Snapshot) -> tuple[Placement, ...]:
    """The placements with what their claims get, in their order."""
    if not any(each.pod.pod_class.volumes for each in placements):
        return placements
    pods = [(each.pod.pod_class.volumes, each.node) for each in placements]
    choices = chosen_for(pods, snapshot.storage, snapshot.table)
    return tuple(
        replace(placement, volumes=chosen) if chosen else placement
        for placement, chosen in zip(placements, choices, strict=True)
    )


def run_round(
    snapshot: Snapshot,
    policies: Mapping[str, Policy] = DEFAULT_POLICIES,
    models: Mapping[str, CostModel] = MODELS,
    *,
    cache: VerdictCache | None = None,
    steps: int = DEFAULT_STEPS,
    seed: int = 0,
    say: Say = unguarded,
) -> RoundResult:
    """Plans all pending pods of a snapshot at once.

    Args:
        snapshot: nodes, what is taken, what waits. Each pending pod's ``policy`` must be a key of ``policies``.
        models: cost models by name; every model that a policy names must be there.
        cache: verdicts of earlier rounds; it makes a round faster and changes nothing else.
        steps: how many steps to take at most, at least one.
        seed: of the random choices of the search.
        say: computes each part of what is said of the plan.

    Returns:
        A plan that places each pending pod or gives a reason why not. It never overcommits a resource and never breaks
        a filter; a pod that stays pending fits on no node beside the placements.
    """
    this = Round(snapshot, policies, models, cache=cache, seed=seed, say=say)
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
    columns, twins = with_columns(snapshot), FormTwins()
    passes = (
        CompileNetworks(),
        CompileConstraints(),
        CompileWorkloadKinds(),
        PlaceReplacements(None, by_way),
        twins,
        WithoutAtomicGroups(),
    )
    problem = apply_all(passes, Problem(columns.snapshot, policies, models))
    portfolio = Portfolio(problem)
    portfolio.offer(one_by_one(problem, kube_scheduler_order(problem)))
    bound = first_bound(problem.cost_matrix)
    result = build_result(problem, invert_all(passes, portfolio.best), bound=bound, relaxed=False, steps=0)
    return without_columns(twins.together(result), columns, policies)


def _passing_without_devices(pod: PendingPod, snapshot: Snapshot) -> Bools:
    """bool[N]: nodes that a pod passes, its devices left out."""
    bare = msgspec.structs.replace(pod.pod_class, devices=None)
    return run_filters(bare, snapshot, pod.signature).fits
