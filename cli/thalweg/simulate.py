"""``thalweg simulate``: plans the pending pods of a cluster dump with the operator's planner."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import islice
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from flowcore.classes import group
from flowcore.cluster.snapshot import Snapshot
from flowcore.explain import node_reasons
from flowcore.planning import Placement
from flowcore.scenario import Scenario, ScenarioPlan, plan_scenario
from thalweg import evictions
from thalweg.files import DumpError
from thalweg.reader import read_dump
from thalweg.tables import MAX_ROWS, print_truncated
from thalweg_cost_models import find_models

_UNGOVERNED = "no policy governs it"


@dataclass(frozen=True, slots=True)
class Simulation(ScenarioPlan):
    """A plan for a dump, and how long it took."""

    seconds: float = 0.0


def plan(scenario: Scenario, now: float, *, reschedule: bool = False, only: Collection[str] = ()) -> Simulation:
    """Plans with the installed cost models and takes the time (flowcore/scenario/plan.py)."""
    started = time.perf_counter()
    with redirect_stdout(sys.stderr):  # output of plug-ins must not mix with the plan
        found = plan_scenario(scenario, now, find_models().usable, reschedule=reschedule, only=only)
    return Simulation(
        found.result, found.before, found.skipped, found.gaps, found.warnings, time.perf_counter() - started
    )


def as_json(simulation: Simulation, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """The output of ``-o json``.

    Args:
        simulation: the plan.
        warnings: sentences about the files.
    """
    result = simulation.result
    nodes: dict[str, dict[str, str]] = {}
    for pod_group in group([unplaced.pod for unplaced in result.unplaced], result.after.pod_index):
        reasons = node_reasons(pod_group.pod_class, result.after, pod_group.signature)
        nodes.update(dict.fromkeys((pod.key for pod in pod_group.pods), reasons))
    pending: dict[str, Any] = {
        unplaced.pod.key: {"reason": unplaced.reason, "nodes": nodes[unplaced.pod.key]} for unplaced in result.unplaced
    }
    names = [node.name for node in result.after.table.nodes]
    # Pods with a victim may use the victim's node only: all nodes get the reason of the pod.
    with_victim = {unplaced.pod.key: unplaced.reason for unplaced in result.unplaced if unplaced.pod.victim is not None}
    for key, reason in (simulation.skipped | with_victim).items():
        pending[key] = {"reason": reason, "nodes": dict.fromkeys(names, reason)}
    return {
        "placements": {placement.pod.key: placement.node for placement in result.placements},
        "pending": pending,
        "evictions": evictions.as_json(result.evictions),
        "proposals": evictions.as_json(result.proposals),
        "cost": result.cost,
        "lowerBound": result.lower_bound,
        "gap": round(result.gap, 6),
        "certified": simulation.certified,
        "bound": len(result.placements),
        "seconds": round(simulation.seconds, 6),
        "warnings": list(warnings),
    }


def run_simulation(files: tuple[str, ...], output: str, *, reschedule: bool) -> None:
    """Reads the files, plans and prints. An unreadable file gives one line of error and exit code 2."""
    try:
        dump = read_dump(files)
    except DumpError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)
    waiting = len(dump.waiting())
    if sys.stderr.isatty():
        click.echo(f"planning {waiting} pending pods on {len(dump.cluster.nodes)} nodes ...", err=True)
    simulation = plan(dump, time.time(), reschedule=reschedule)
    warnings = [*dump.warnings, *simulation.warnings, *simulation.gaps]
    for warning in warnings:
        click.echo(f"Warning: {warning}", err=True)
    if output == "json":
        click.echo(msgspec.json.encode(as_json(simulation, warnings)))
        return
    _print(simulation, simulation.result.after)


def _print(simulation: Simulation, after: Snapshot) -> None:
    console, result = Console(), simulation.result
    if result.placements:
        table = Table("POD", "NODE", "COST", box=None, pad_edge=False)
        for placement in result.placements[:MAX_ROWS]:
            table.add_row(placement.pod.key, _where(placement), str(placement.price))
        console.print(table)
        print_truncated(console, len(result.placements))
        console.print()
    pending = {**simulation.skipped, **{unplaced.pod.key: unplaced.reason for unplaced in result.unplaced}}
    if pending:
        table = Table("PENDING", "REASON", box=None, pad_edge=False)
        for key, reason in islice(pending.items(), MAX_ROWS):
            table.add_row(key, reason)
        console.print(table)
        print_truncated(console, len(pending))
        console.print()
    evictions.print_evictions(console, "LEAVES", result.evictions)
    evictions.print_evictions(console, "WOULD LEAVE", result.proposals)
    nodes = f"{len(after.table.nodes)} nodes"
    leaving = f"{len(result.evictions)} evicted, " if result.evictions else ""
    if not result.placements and not pending:
        console.print(f"{leaving}no pending pods on {nodes}")
        return
    console.print(
        f"{len(result.placements)} placed, {leaving}{len(pending)} pending on {nodes}; "
        f"{_proof(simulation)}, {simulation.seconds:.3f} s"
    )


def _where(placement: Placement) -> str:
    victims = placement.victims
    if not victims:
        return placement.node
    return f"{placement.node}, once {evictions.some(victims)} {'has' if len(victims) == 1 else 'have'} left"


def _proof(simulation: Simulation) -> str:
    result = simulation.result
    if not result.placements and not result.unplaced:
        return "no pending pod can be planned"
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
