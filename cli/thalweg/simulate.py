"""``thalweg simulate``: plans the pending pods of a cluster dump with the operator's planner."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import islice
from typing import Any

import click
import msgspec
from rich.console import Console

from flowcore.planning.round import Placement
from flowcore.questions.scenario import Scenario, ScenarioPlan, plan_scenario
from flowcore.questions.scenario.comparison import Comparison, compare_one_by_one
from flowcore.questions.scenario.moment import moment_text
from flowcore.questions.scenario.planned_workloads import (
    LeavingWorkload,
    PlannedWorkload,
    leaving_workloads,
    planned_workloads,
)
from flowcore.rules.reasons import node_reasons
from flowcore.rules.verdicts import group
from thalweg import evictions
from thalweg.print_comparison import print_comparison
from thalweg.progress import passing, planning
from thalweg.tables import MAX_ROWS, counted, print_table, print_truncated, stdout_console
from thalweg.workload_tables import print_leaving, print_workloads
from thalweg_cost_models import find_models


@dataclass(frozen=True, slots=True)
class Simulation(ScenarioPlan):
    """A plan for a dump.

    Attributes:
        seconds: how long it took.
        workloads: the pods that wait, by workload.
        leaving, proposed: the running pods that leave, and that would, by workload.
    """

    seconds: float = 0.0
    workloads: tuple[PlannedWorkload, ...] = ()
    leaving: tuple[LeavingWorkload, ...] = ()
    proposed: tuple[LeavingWorkload, ...] = ()


def plan(scenario: Scenario, now: float, *, reschedule: bool = False, only: Collection[str] = ()) -> Simulation:
    """Plans with the installed cost models and takes the time (flowcore/questions/scenario/plan.py)."""
    started = time.perf_counter()
    with redirect_stdout(sys.stderr):  # output of plug-ins must not mix with the plan
        models = find_models().usable
        found = plan_scenario(scenario, now, models, reschedule=reschedule, only=only)
    return Simulation(
        found.result,
        found.before,
        found.skipped,
        found.gaps,
        found.warnings,
        time.perf_counter() - started,
        tuple(planned_workloads(scenario, found)),
        tuple(leaving_workloads(scenario, found.result.evictions)),
        tuple(leaving_workloads(scenario, found.result.proposals)),
    )


def compare(scenario: Scenario, simulation: Simulation) -> Comparison:
    """The plan beside the same pods one by one, with the installed cost models."""
    with redirect_stdout(sys.stderr):
        return compare_one_by_one(scenario, simulation, find_models().usable)


def as_json(simulation: Simulation, warnings: Sequence[str] = (), *, nodes: bool = False) -> dict[str, Any]:
    """The output of ``-o json``.

    Args:
        simulation: the plan.
        warnings: sentences about the files.
        nodes: with the reason of each node for each pending pod.
    """
    result = simulation.result
    waits = simulation.skipped | {unplaced.pod.key: unplaced.reason for unplaced in result.unplaced}
    pending: dict[str, Any] = {key: {"reason": reason} for key, reason in waits.items()}
    if nodes:
        for key, by_node in _reasons_by_node(simulation):
            pending[key]["nodes"] = by_node
    return {
        "placements": {placement.pod.key: placement.node for placement in result.placements},
        "pending": pending,
        "workloads": simulation.workloads,
        "reasons": dict(Counter(waits.values()).most_common()),
        "evictions": evictions.as_json(result.evictions),
        "proposals": evictions.as_json(result.proposals),
        "cost": result.cost,
        "lowerBound": result.lower_bound,
        "gap": round(result.gap, 6),
        "certified": simulation.certified,
        "bound": len(result.placements),
        "seconds": round(simulation.seconds, 6),
        "warnings": list(warnings),
        "now": moment_text(result.after.now),
    }


def _reasons_by_node(simulation: Simulation) -> Iterator[tuple[str, msgspec.Raw]]:
    """Key of each pending pod, and node -> reason as JSON. Equal pods share it: it is as large as the cluster."""
    result = simulation.result
    # Pods with a victim may use the victim's node only, and pods that are skipped none: all nodes get their reason.
    own = simulation.skipped | {each.pod.key: each.reason for each in result.unplaced if each.pod.victim is not None}
    names = [node.name for node in result.after.table.nodes]
    same = {reason: _encoded(dict.fromkeys(names, reason)) for reason in set(own.values())}
    yield from ((key, same[reason]) for key, reason in own.items())
    others = [unplaced.pod for unplaced in result.unplaced if unplaced.pod.key not in own]
    for pod_group in group(others, result.after.pod_index):
        reasons = _encoded(node_reasons(pod_group.pod_class, result.after, pod_group.signature))
        yield from ((pod.key, reasons) for pod in pod_group.pods)


def _encoded(reasons: dict[str, str]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(reasons))


@dataclass(frozen=True, slots=True)
class Printed:
    """What is printed of a plan.

    Attributes:
        output: "table" or "json".
        comparison: the same pods one by one too.
        nodes: in JSON, the reason of each node for each pending pod.
        pods: all pods, not a line for each workload.
        verbose: the plan's cost and what is proven of it.
    """

    output: str = "table"
    comparison: bool = False
    nodes: bool = False
    pods: bool = False
    verbose: bool = False


def run_simulation(dump: Scenario, printed: Printed, *, reschedule: bool) -> None:
    """Plans and prints."""
    pods, on = counted(len(dump.waiting()), "pending pod"), counted(len(dump.cluster.nodes), "node")
    with planning(dump):
        simulation = plan(dump, dump.moment, reschedule=reschedule)
    comparison = None
    if printed.comparison:
        with passing(f"placing {pods} on {on} one by one"):
            comparison = compare(dump, simulation)
    warnings = [*dump.warnings, *simulation.warnings, *simulation.gaps]
    for warning in warnings:
        click.echo(f"Warning: {warning}", err=True)
    if printed.output == "json":
        added = {} if comparison is None else {"comparison": comparison}
        click.echo(msgspec.json.encode(as_json(simulation, warnings, nodes=printed.nodes) | added))
        return
    console = stdout_console()
    console.print(f"{_summary(simulation)}\n")
    if comparison is not None:
        print_comparison(console, comparison)
    elif printed.pods:
        _print_pods(console, simulation)
    else:
        print_workloads(console, simulation.workloads)
        print_leaving(console, "LEAVES", simulation.leaving)
        print_leaving(console, "WOULD LEAVE", simulation.proposed)
    if printed.verbose:
        console.print(_proof(simulation))


def _print_pods(console: Console, simulation: Simulation) -> None:
    result = simulation.result
    if result.placements:
        rows = ((each.pod.key, _where(each), str(each.price)) for each in result.placements[:MAX_ROWS])
        print_table(console, ("POD", "NODE", "COST"), rows)
        print_truncated(console, len(result.placements))
        console.print()
    pending = simulation.skipped | {unplaced.pod.key: unplaced.reason for unplaced in result.unplaced}
    if pending:
        print_table(console, ("PENDING", "REASON"), islice(pending.items(), MAX_ROWS))
        print_truncated(console, len(pending))
        console.print()
    evictions.print_evictions(console, "LEAVES", result.evictions)
    evictions.print_evictions(console, "WOULD LEAVE", result.proposals)


def _summary(simulation: Simulation) -> str:
    result = simulation.result
    on = counted(len(result.after.table.nodes), "node")
    moved, evicted = (sum(bool(each.to) is to for each in result.evictions) for to in (True, False))
    leaving = (f"{moved:,} moved, " if moved else "") + (f"{evicted:,} evicted, " if evicted else "")
    pending = len(simulation.skipped) + len(result.unplaced)
    if not result.placements and not pending:
        return f"{leaving}no pending pods on {on}"
    proof = f"; {proven}" if (proven := _short_proof(simulation)) else ""
    return f"{len(result.placements):,} placed, {leaving}{pending:,} pending on {on}{proof}"


def _short_proof(simulation: Simulation) -> str:
    """What people should know of the plan without asking; "": nothing."""
    if not simulation.result.placements and not simulation.result.unplaced:
        return "no pending pod can be planned"
    if simulation.gaps:
        return "not certified: the files lack objects that the plan needs"
    return "certified: no plan costs less" if simulation.certified else ""


def _where(placement: Placement) -> str:
    victims = placement.victims
    if not victims:
        return placement.node
    return f"{placement.node}, once {evictions.some(victims)} {'has' if len(victims) == 1 else 'have'} left"


def _proof(simulation: Simulation) -> str:
    return f"{_cost(simulation)}; planned in {simulation.seconds:.3f} s"


def _cost(simulation: Simulation) -> str:
    result = simulation.result
    if simulation.gaps:
        return f"cost {result.cost}, not certified: the files lack objects that the plan needs"
    if simulation.certified:
        return f"cost {result.cost}, certified: no plan costs less"
    if result.evictions:
        return f"cost {result.cost}, not certified: plans that evict pods have no bound"
    if not result.lower_bound:
        return f"cost {result.cost}, not certified: networks and other pods are planned one after the other"
    # Rounded up, so that a plan with a gap never shows none.
    gap = math.ceil(result.gap * 1000) / 10
    return f"cost {result.cost}, not certified: optimality gap <= {gap:.1f} %"
