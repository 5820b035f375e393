"""Atomic groups, and pods with host ports or with constraints that limit domains, decided exactly by CP-SAT.

It is one integer program, which leaves out what a node costs beyond its first pod. So its answer is a proposal like any
other: it is placed for real and kept if the cost of the round falls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.methods.admission import complete
from flowcore.planning.methods.assignment_program import (
    AtomicBundles,
    Pairs,
    assignment_program,
    pods_per_run,
    price_runs,
)
from flowcore.planning.methods.conflict_rows import with_conflict_rows
from flowcore.planning.methods.gang_members import (
    ChosenMembers,
    SinglePods,
    chosen_members,
    groups_with_choice,
    members_of,
    with_member_rows,
)
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.levels import waiting_places
from flowcore.planning.problem.objective import unplaced_counts
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import Commit, placed_counts
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem
from flowcore.planning.solvers import solve_mip

#: Programs with more columns take longer than a round has.
_MOST_COLUMNS = 12_000
#: Without groups: pairs of a demand and a node that fit. With more CP-SAT seldom finds a better plan in time.
_MOST_PAIRS = 1_500
#: Runs that the prices of a demand are merged into.
_STEPS = 3


def solve_exact(problem: Problem, candidate: Candidate, *, work: float, seed: int) -> Candidate | None:
    """A candidate that seems better than a known one, completed with all that fits; None if none does.

    Groups need the pods that the problem says, and those that are not admitted count without their other pods.
    Pods that are ``Problem.immovable`` stay where the known candidate has them, and groups with such pods stay admitted
    or not. Groups that must be in one domain keep theirs, or stay out. Those that
    prefer domains keep theirs, or go to any nodes.

    Args:
        work: CP-SAT's deterministic time.
    """
    solved = _solve(problem, candidate, np.zeros(len(candidate.admitted), dtype=np.bool_), work, seed)
    return None if solved is None else solved[1]


def solve_with_members(
    problem: Problem, candidate: Candidate, *, work: float, seed: int
) -> tuple[ChosenMembers, Candidate] | None:
    """The same, and the pods that groups need are chosen too.

    Returns:
        Groups that need other pods than the problem says, and a candidate of the problem with these; None: none seems
        better than the known one, or no group has a choice.
    """
    with_choice = groups_with_choice(problem)
    if not with_choice.any():
        return None
    return _solve(problem, candidate, with_choice, work, seed)


def _solve(
    problem: Problem, candidate: Candidate, with_choice: Bools, work: float, seed: int
) -> tuple[ChosenMembers, Candidate] | None:
    """Both. ``with_choice``: bool[U], groups whose needed pods are chosen if their admission is."""
    atomic_groups, demands, immovable = problem.atomic_groups.all, candidate.demands, problem.immovable
    decidable = [
        not group.unschedulable_reason
        and (not group.needs_domain or bool(candidate.admitted[number]))
        and not immovable[list(group.demands)].any()
        for number, group in enumerate(atomic_groups)
    ]
    undecided = np.array(decidable, dtype=np.bool_)
    fixed, with_choice = candidate.admitted & ~undecided, with_choice & undecided
    bundled = np.where(with_choice[:, np.newaxis], 0, problem.required)
    capacity, fixed_commits = problem.start.copy(), []
    for commit in candidate.commits:
        if immovable[commit.demand]:
            taken = capacity.place(demands[commit.demand], commit.node, commit.count)
            fixed_commits.append(Commit(commit.demand, commit.node, taken))
    free = [
        SinglePods(
            index,
            np.nonzero(
                ~problem.atomic_groups.needed[index]
                & _may_be_placed(problem.atomic_groups.group_of[index], candidate.admitted & ~with_choice)
            )[0],
        )
        for index in range(len(demands))
        if not immovable[index]
    ]
    singles = sorted([*free, *members_of(problem, with_choice)], key=lambda each: each.demand)
    extra = problem.required[fixed].sum(axis=0)
    extra[immovable] = 0  # all of their pods stay
    supply = bundled[undecided].sum(axis=0) + extra
    for single in singles:
        supply[single.demand] += len(single.places)
    counts = np.array([_most_pods(capacity, demand) for demand in demands])
    counts = np.minimum(counts, supply[:, np.newaxis])
    who, where = np.nonzero(counts)
    if not len(who) or len(who) + int(undecided.sum()) > _MOST_COLUMNS:
        return None
    runs_of = [price_runs(demands[each.demand].prices[each.places], _STEPS) for each in singles]
    runs: list[list[Float64s]] = [[] for _ in demands]
    for single, its_runs in zip(singles, runs_of, strict=True):
        runs[single.demand] += its_runs
    requests = np.array([demand.requests for demand in demands], dtype=np.float64)
    pairs = Pairs(who, where, problem.cost_matrix.first_pod_cost[who, where], counts[who, where].astype(np.float64))
    value = np.array([group.unscheduled_cost for group in atomic_groups], dtype=np.float64)
    total = value.sum() + sum(float(run.sum()) for its_runs in runs_of for run in its_runs)
    value[with_choice] = 0.0  # their pods have columns of their own
    value[[group.goes_first for group in atomic_groups]] += total
    bundles = AtomicBundles(bundled[undecided].astype(np.float64), value[undecided])
    left = np.maximum(capacity.free, 0).astype(np.float64)
    program = assignment_program(pairs, requests, left, runs, bundles, extra.astype(np.float64))
    columns = len(program.costs)
    left_out = columns - int(undecided.sum()) + np.cumsum(undecided) - 1
    ends = len(who) + np.cumsum([len(its_runs) for its_runs in runs_of])
    columns_of_runs = [
        np.arange(end - len(its_runs), end) for end, its_runs in zip(ends.tolist(), runs_of, strict=True)
    ]
    program = with_member_rows(problem, program, singles, columns_of_runs, left_out)
    program, with_values = with_conflict_rows(program, pairs, demands, capacity)
    if len(program.costs) > _MOST_COLUMNS:
        return None
    hint = with_values(_hint(candidate, problem, singles, runs_of, who, where, undecided))
    solution = solve_mip(program, deterministic_time=work, seed=seed, hint=hint)
    if solution is None or program.costs @ solution.values >= program.costs @ hint:
        return None
    chosen = fixed.copy()
    chosen[undecided] = solution.values[left_out[undecided]] < 0.5
    pending = [round(float(solution.values[its_columns].sum())) for its_columns in columns_of_runs]
    members = chosen_members(problem, chosen & with_choice, singles, pending)
    problem = problem.with_members(members) if members else problem
    pods = solution.values[: len(who)].astype(np.int64)
    for demand in range(len(demands)):
        # Optional pods of a group that is not admitted now must not be placed.
        columns_of = np.nonzero(who == demand)[0]
        allowed = len(problem.atomic_groups.placement_order(demand, chosen)) - sum(
            commit.count for commit in fixed_commits if commit.demand == demand
        )
        pods[columns_of] = np.diff(np.minimum(np.cumsum(pods[columns_of]), max(0, allowed)), prepend=0)
    commits = [*fixed_commits, *_place_all(demands, capacity, who, where, pods)]
    placed = np.array(placed_counts(commits, len(demands)), dtype=np.int64)
    most = np.array([len(problem.atomic_groups.placement_order(demand, chosen)) for demand in range(len(demands))])
    if (placed < problem.required[chosen].sum(axis=0)).any() or (placed > most).any():
        return None
    solved = replace(
        candidate,
        method="gangs by CP-SAT" if atomic_groups else "rules by CP-SAT",
        admitted=chosen,
        commits=tuple(commits),
        capacity=capacity,
    )
    return members, complete(problem, solved, full=True)


def solve_without_preferences(problem: Problem, candidate: Candidate, *, work: float, seed: int) -> Candidate | None:
    """A candidate that leaves fewer pods than a known one, as groups give up the domains that they only prefer.

    None: there is none. The arguments are those of ``solve_exact``.
    """
    groups = problem.atomic_groups.all
    released = {
        demand
        for number, group in enumerate(groups)
        if candidate.admitted[number] and not group.any_domain and not group.needs_domain
        for demand in group.demands
    }
    left = sum(unplaced_counts(candidate.commits, problem.demands))
    if not released or not left:
        return None
    demands = tuple(
        problem.demands[number] if number in released else demand for number, demand in enumerate(candidate.demands)
    )
    solution = solve_exact(problem, replace(candidate, demands=demands), work=work, seed=seed)
    fewer = solution is not None and sum(unplaced_counts(solution.commits, problem.demands)) < left
    return solution if fewer else None


def worth_solving(problem: Problem, candidate: Candidate) -> bool:
    """Whether a candidate without groups leaves pods pending that another candidate might place, or costs more.

    If the constraints of a demand let in no more of its pods than are placed, no other candidate places more. Where no
    constraint and no port is in the way, ``packing`` decides. A plan of all pods may cost more than another one where
    prices rise with their number, or where several demands share a limit that is reached. A minimum may lack pods.
    """
    rises = any(demand.constraints.rising for demand in problem.demands)
    if not rises and not (problem.not_packable & ~problem.immovable).any():
        return False
    if sum(np.count_nonzero(demand.counts) for demand in problem.demands) > _MOST_PAIRS:
        return False
    remaining = unplaced_counts(candidate.commits, problem.demands)
    if problem.objective.lacking(candidate.commits):
        return True
    if not any(remaining):
        return rises or _shares_full_domain(problem, candidate)
    return any(
        remaining[index] > 0
        and not problem.immovable[index]
        and demand.count - remaining[index] < demand.constraints.max_placeable(demand.counts)
        for index, demand in enumerate(problem.demands)
    )


def _shares_full_domain(problem: Problem, candidate: Candidate) -> bool:
    """Whether several demands share a limit that a plan reaches in a domain."""
    sharing = Counter(counter for demand in problem.demands for counter in demand.constraints.limits)
    counts = candidate.capacity.domain_counts
    return any(
        sharing[counter] > 1 and (counts.of(counter)[:-1] >= most).any()
        for demand in problem.demands
        for counter, most in demand.constraints.limits.items()
        if most and counter in demand.constraints.increments
    )


def _most_pods(capacity: Plan, demand: Demand) -> Int64s:
    """int64[N]: how many pods of a demand each node takes at most, whatever else is placed."""
    rules = demand.constraints
    if not rules.spreads:
        return capacity.max_pods(demand)
    # A spread may allow more once others are placed.
    most = np.where(capacity.domain_counts.blocked(rules), 0, capacity.fit_counts(demand))
    for spread in rules.spreads:
        most[~spread.counter.domains.labelled] = 0
    return most


def _may_be_placed(group_of: Int64s, admitted: Bools) -> Bools:
    """bool[pods]: pods in no group, or in a group that is admitted already."""
    placeable: Bools = (group_of < 0) | (admitted[group_of] if len(admitted) else False)
    return placeable


def _hint(
    candidate: Candidate,
    problem: Problem,
    singles: Sequence[SinglePods],
    runs_of: Sequence[Sequence[Float64s]],
    who: Int64s,
    where: Int64s,
    undecided: Bools,
) -> Float64s:
    """The known candidate as values of the program's columns."""
    placed_on: dict[tuple[int, int], int] = {}
    for commit in candidate.commits:
        pair = commit.demand, commit.node
        placed_on[pair] = placed_on.get(pair, 0) + commit.count
    waiting = waiting_places(problem, candidate)
    pending: list[float] = []
    for single, runs in zip(singles, runs_of, strict=True):
        pending += pods_per_run(runs, int(np.isin(single.places, waiting[single.demand]).sum()))
    pods = [float(placed_on.get(pair, 0)) for pair in zip(who.tolist(), where.tolist(), strict=True)]
    return np.array([*pods, *pending, *(~candidate.admitted[undecided]).astype(np.float64)])


def _place_all(demands: tuple[Demand, ...], capacity: Plan, who: Int64s, where: Int64s, pods: Int64s) -> list[Commit]:
    used = pods > 0
    arcs = list(zip(who[used].tolist(), where[used].tolist(), pods[used].tolist(), strict=True))
    fits = capacity.place_all(demands, who[used], where[used], pods[used]).tolist()
    commits = [Commit(*arc) for arc, whole in zip(arcs, fits, strict=True) if whole]
    waiting = [arc for arc, whole in zip(arcs, fits, strict=True) if not whole]
    turns = capacity.place_by_turns([(demands[demand], node, count) for demand, node, count in waiting])
    return [*commits, *(Commit(*waiting[number][:2], taken) for number, taken in turns)]
