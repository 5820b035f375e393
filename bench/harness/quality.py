"""How good plans are where CP-SAT can say what is possible: pods left out and cost, method by method.

The objective is pods placed: all pods of these instances cost the same to leave, far more than any way of placing
them. Costs are the engine's own prices of each plan, whichever method made it. A lower bound that the engine claims
and any method's plan undercuts is a wrong certificate, and so is a plan called optimal that one of them beats.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.planning.problem.demands.demands import demands_of
from flowcore.planning.problem.objective import Objective
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.round import RoundResult, run_one_by_one
from flowcore.planning.round.round import DEFAULT_POLICIES
from harness import greedy
from harness.budget import round_within
from harness.exact import fewest_left
from harness.rechecks import Checker, Placed
from harness.rows import Row
from harness.small import PODS, make_small

_ENGINE, _EXACT = "a round, 0.5 s", "CP-SAT from that plan"


@dataclass(slots=True)
class _Sum:
    """One method over all instances of a load."""

    left: int = 0
    placed: int = 0
    cost: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    bound: int | None = 0
    certified: int = 0
    wrong: list[str] = field(default_factory=list)


def compare(load: float, instances: int, cpsat_seconds: float, workers: int) -> list[Row]:
    """A row for each method, summed over the instances."""
    sums: dict[str, _Sum] = {}
    fewest = 0
    for seed in range(1, instances + 1):
        fewest += _one(make_small(load, seed), sums, cpsat_seconds, workers)
    return [
        Row(
            part="quality",
            case=f"{instances} x {PODS} pods",
            method=name,
            load=load,
            placed=each.placed,
            left=each.left,
            fewest=fewest,
            cpu_seconds=each.seconds / instances,
            cost=each.cost,
            gap=(each.cost - each.bound) / each.cost if each.bound is not None and name == _ENGINE else None,
            certified=each.certified == instances if each.bound is not None and name == _ENGINE else None,
            safe="NO: " + "; ".join(each.wrong) if each.wrong else "yes",
            note=f"slowest {each.slowest:.2f} s",
        )
        for name, each in sums.items()
    ]


def _one(snapshot: Snapshot, sums: dict[str, _Sum], cpsat_seconds: float, workers: int) -> int:
    checker = Checker(snapshot)
    pods = snapshot.pending
    costs: dict[str, int] = {}
    lefts: dict[str, int] = {}

    def add(name: str, placed: Sequence[Placed], seconds: float, wrong: Sequence[str] = ()) -> _Sum:
        total = sums.setdefault(name, _Sum())
        costs[name], lefts[name] = _cost(snapshot, placed), len(pods) - len(placed)
        total.placed += len(placed)
        total.left += lefts[name]
        total.cost += costs[name]
        total.seconds += seconds
        total.slowest = max(total.slowest, seconds)
        total.wrong.extend(wrong)
        if (checker.free(placed) < 0).any():
            total.wrong.append("overcommitted")
        return total

    for taste in (greedy.Taste.PREFERENCE, greedy.Taste.LEAST, greedy.Taste.MOST):
        before = time.process_time()
        placed = greedy.place(checker, pods, taste)
        add(taste.value, placed, time.process_time() - before)
    results: dict[str, RoundResult] = {}
    ways: dict[str, Callable[[Snapshot], RoundResult]] = {"engine one by one": run_one_by_one, _ENGINE: _half_a_second}
    for name, plan in ways.items():
        before = time.process_time()
        results[name] = plan(snapshot)
        seconds = time.process_time() - before
        add(name, checker.placed(results[name]), seconds, checker.check(results[name]).broken)
    before = time.process_time()
    exact = fewest_left(checker, checker.placed(results[_ENGINE]), cpsat_seconds, workers)
    add(_EXACT, exact.placed, time.process_time() - before)
    _judge_certificate(results[_ENGINE], sums[_ENGINE], costs)
    if any(left < exact.fewest for left in lefts.values()):
        sums[_EXACT].wrong.append("its bound is above a plan")
    return exact.fewest


def _judge_certificate(result: RoundResult, total: _Sum, costs: dict[str, int]) -> None:
    """A bound above what some plan reaches, or an optimum that some plan beats, is wrong."""
    bound = getattr(result, "lower_bound", None)
    if bound is None:
        total.bound = None
        return
    total.bound = None if total.bound is None else total.bound + bound
    best = min(costs, key=lambda name: costs[name])
    if bound > costs[best]:
        total.wrong.append(f"bound {bound} above the cost {costs[best]} of {best}")
    if getattr(result, "certified", False):
        total.certified += 1
        if costs[best] < result.cost:
            total.wrong.append(f"certified at {result.cost}, {best} costs {costs[best]}")


def _cost(snapshot: Snapshot, placed: Sequence[Placed]) -> int:
    """What a plan costs by the engine's prices, whatever the order."""
    start = Plan(snapshot)
    demands = demands_of(snapshot, start.load(), DEFAULT_POLICIES)
    at_of = {demand.group.pod_class: at for at, demand in enumerate(demands)}
    counts = Counter((at_of[pod.pod_class], at) for pod, at in placed)
    commits = [Commit(demand, at, count) for (demand, at), count in counts.items()]
    return Objective(demands, start).total(commits)


def _half_a_second(snapshot: Snapshot) -> RoundResult:
    return round_within(snapshot, 0.5)
