"""A candidate as a result: for each pod a placement, or why it stays pending."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools
from flowcore.planning.gangs.by_rank import by_rank
from flowcore.planning.methods.resident_bound import bound_beside
from flowcore.planning.problem.objective import open_counts
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.result import Placement, RoundResult, Unplaced
from flowcore.planning.round.unplaced_reasons import UnplacedReasons
from flowcore.rules.reasons.codes import QUEUE_LIMIT, UNEXPLAINED
from flowcore.rules.reasons.reasons import Reason
from flowcore.rules.topology.round_constraints.waves import waves_of

#: Names of parts of what is said.
_WHY: Final = "Why pods wait"
_UNEXPLAINED = Reason("The plan has no node for it. Why is not known.", UNEXPLAINED, more_nodes_help=False)


def build_result(
    problem: Problem,
    candidate: Candidate,
    bound: int,
    *,
    relaxed: bool,
    steps: int,
    solves: int = 0,
    arcs: int = 0,
) -> RoundResult:
    """The result of a round.

    Args:
        problem: what was solved, after all passes.
        candidate: the plan, with all passes inverted.
        bound: a cost that no candidate of ``problem`` goes below.
        relaxed: whether it knows the problem in fractions.
    """
    placements, pending = _placements(problem, candidate)
    committed = [(placement.node, placement.pod.signature) for placement in placements]
    after = candidate.capacity.to_snapshot(committed)
    with_held, after_with_held = candidate, after
    if candidate.held is not None:
        with_held = replace(candidate, capacity=candidate.capacity.copy().hold(problem.demands, candidate.held.commits))
        after_with_held = with_held.capacity.to_snapshot(committed)
    explain = partial(UnplacedReasons, problem, with_held, after, after_with_held)
    reasons = problem.say(_WHY, explain, None)
    problem.charge(())
    unplaced = tuple(
        Unplaced(
            demand.group.pods[place],
            reason.text,
            int(demand.prices[place]),
            reason.code,
            reason.more_nodes_help,
            reason.settles_in,
            reason.frees,
        )
        for number, demand in enumerate(problem.demands)
        for place, reason in _reasons(problem, reasons, number, np.nonzero(pending[number])[0].tolist())
    )
    decided = candidate.decided
    if decided.before is not None:
        is_short = any(open_counts(candidate.commits, problem.demands))
        beside = partial(bound_beside, problem, decided.before, is_short=is_short)
        bound = problem.say("The bound of the cost", beside, 0)
    notes = partial(problem.bound_notes, relaxed=relaxed, decided=decided.notes)
    return RoundResult(
        generation=problem.snapshot.generation,
        placements=(*decided.placements, *placements),
        unplaced=(*decided.unplaced, *unplaced),
        cost=candidate.cost,
        lower_bound=0,
        method=candidate.method,
        steps=steps,
        solves=solves,
        arcs=arcs,
        after=after,
        contradictions=problem.contradictions,
    ).bounded_by(bound + decided.least_cost, problem.say("What the bound does not count", notes, ()))


def _reasons(
    problem: Problem, reasons: UnplacedReasons | None, number: int, places: Sequence[int]
) -> Sequence[tuple[int, Reason]]:
    """The reason for each of these pods of a demand."""
    unknown = [(place, _UNEXPLAINED) for place in places]
    if problem.demands[number].is_held_back:
        return [(place, _held_back(problem, number, place)) for place in places]
    if reasons is None or not places:
        return unknown
    return problem.say(_WHY, lambda: list(reasons.of(number, places)), unknown)


def _held_back(problem: Problem, number: int, place: int) -> Reason:
    text = problem.snapshot.held_back[problem.demands[number].group.pods[place].key]
    return Reason(text, QUEUE_LIMIT, more_nodes_help=False)


def _placements(problem: Problem, candidate: Candidate) -> tuple[list[Placement], list[Bools]]:
    """Placements in commit order; and for each demand bool[pods], those that stay pending."""
    demands, atomic_groups, nodes = problem.demands, problem.atomic_groups, problem.snapshot.table.nodes
    prices = iter(problem.objective.pod_prices(candidate.commits).tolist())
    waves = waves_of(
        ((commit.demand, commit.node, commit.count) for commit in candidate.commits),
        [demand.constraints for demand in demands],
    )
    nodes_of: dict[int, list[int]] = {}
    for commit in candidate.commits:
        nodes_of.setdefault(commit.demand, []).extend([commit.node] * commit.count)
    orders = {
        number: iter(by_rank(problem, number, atomic_groups.placement_order(number, candidate.admitted), of_demand))
        for number, of_demand in nodes_of.items()
    }
    pending = [np.ones(demand.count, dtype=np.bool_) for demand in demands]
    placements = []
    for commit in candidate.commits:
        number = commit.demand
        for _ in range(commit.count):
            place = next(orders[number])
            pending[number][place] = False
            group = int(atomic_groups.group_of[number][place])
            chain, wave = next(waves)
            placements.append(
                Placement(
                    demands[number].group.pods[place],
                    nodes[commit.node].name,
                    next(prices),
                    wave,
                    chain,
                    atomic_groups.all[group].name if group >= 0 else "",
                    group >= 0 and not atomic_groups.needed[number][place],
                    unscheduled_price=int(demands[number].prices[place]),
                )
            )
    return placements, pending
