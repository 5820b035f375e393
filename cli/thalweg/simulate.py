"""``thalweg simulate``: the real engine on a cluster dump."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table
from thalweg_operator.cost_models import find_models

from flowcore.classes import group
from flowcore.explain import node_reasons
from flowcore.model.snapshot import NodeTable, PendingPod, Snapshot, build_snapshot
from flowcore.model.storage import Storage
from flowcore.rounds import RoundResult, run_round
from thalweg.dump import Dump
from thalweg.files import DumpError
from thalweg.gaps import gaps, refuse_unknown_governors, unknown_claims
from thalweg.reader import read

#: Rows of a table that people read; ``-o json`` has them all.
_ROWS = 200


@dataclass(frozen=True, slots=True)
class Simulation:
    """A plan for a dump.

    Attributes:
        blocked: pods that no plan can place, with the reason.
        gaps: what the files lack that may change the plan; nothing is certified then.
    """

    result: RoundResult
    blocked: dict[str, str]
    seconds: float
    gaps: tuple[str, ...] = ()

    @property
    def certified(self) -> bool:
        """Whether no plan for the cluster costs less."""
        return self.result.certified and not self.gaps


def plan(dump: Dump, now: float) -> Simulation:
    """Plans every pending pod of a dump.

    Args:
        now: seconds since the epoch, for waiting times.
    """
    started = time.perf_counter()
    policies = dump.in_force()
    waiting, running = dump.waiting(), dump.running()
    governed = {pod.key: dump.policy_of(pod, policies) for pod in waiting}
    alone = {pod.key: reason for pod in waiting if (reason := pod.left_alone(governed[pod.key].delivery))}
    judged = [pod for pod in waiting if pod.key not in alone]
    alone |= unknown_claims(dump, judged)
    names, gangs = dump.gangs(policies)
    pending = tuple(
        PendingPod(
            key=pod.key,
            uid=pod.uid,
            pod_class=pod.pod_class,
            policy=governed[pod.key].name,
            created=pod.created,
            since=pod.tried,
            kind=pod.kind,
            replaces=dump.replaced(pod, policies),
            gangs=names[pod.key],
        )
        for pod in waiting
        if pod.key not in alone
    )
    snapshot = build_snapshot(
        generation=0,
        now=now,
        table=NodeTable.of(dump.nodes.values()),
        running=((pod.node_name, pod.usage, pod.pod_class.host_ports) for pod in running),
        pending=pending,
        neighbours=dump.neighbours(),
        storage=Storage.of(dump.storage.values(), ((pod.node_name, pod.pod_class.volumes) for pod in running)),
    )
    snapshot = replace(snapshot, gangs={gang.name: gang for gang in gangs}, lasting=dump.lasting(policies))
    with redirect_stdout(sys.stderr):  # a cost model of somebody else's may print; standard output is for the plan
        result = run_round(snapshot, policies, find_models().usable)
    return Simulation(result, alone, time.perf_counter() - started, tuple(gaps(dump, judged)))


def as_json(simulation: Simulation, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """What ``-o json`` prints.

    Args:
        warnings: about the files.
    """
    result = simulation.result
    nodes: dict[str, dict[str, str]] = {}
    for found in group([left.pod for left in result.left], result.after.neighbours):
        reasons = node_reasons(found.pod_class, result.after, found.kind)
        nodes.update(dict.fromkeys((pod.key for pod in found.pods), reasons))
    pending: dict[str, Any] = {
        left.pod.key: {"reason": left.reason, "nodes": nodes[left.pod.key]} for left in result.left
    }
    names = [node.name for node in result.after.table.nodes]
    elsewhere = {left.pod.key: left.reason for left in result.left if left.pod.replaces is not None}
    for key, reason in (simulation.blocked | elsewhere).items():
        pending[key] = {"reason": reason, "nodes": dict.fromkeys(names, reason)}
    return {
        "placements": {placement.pod.key: placement.node for placement in result.placements},
        "pending": pending,
        "cost": result.cost,
        "lowerBound": result.lower_bound,
        "gap": round(result.gap, 6),
        "certified": simulation.certified,
        "bound": len(result.placements),
        "seconds": round(simulation.seconds, 6),
        "warnings": list(warnings),
    }


def run_simulation(files: tuple[str, ...], output: str) -> None:
    """Reads, plans and prints; a file that cannot be read is one line and exit code 2."""
    try:
        dump = read(files)
        refuse_unknown_governors(dump)
    except DumpError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)
    waiting = len(dump.waiting())
    if sys.stderr.isatty():
        click.echo(f"planning {waiting} pending pods on {len(dump.nodes)} nodes ...", err=True)
    simulation = plan(dump, time.time())
    warnings = [*dump.warnings, *simulation.gaps]
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
        for placement in result.placements[:_ROWS]:
            table.add_row(placement.pod.key, placement.node, str(placement.price))
        console.print(table)
        if len(result.placements) > _ROWS:
            console.print(f"... and {len(result.placements) - _ROWS} more; -o json has them all")
        console.print()
    waits = {**simulation.blocked, **{left.pod.key: left.reason for left in result.left}}
    if waits:
        table = Table("PENDING", "REASON", box=None, pad_edge=False)
        for key, reason in list(waits.items())[:_ROWS]:
            table.add_row(key, reason)
        console.print(table)
        if len(waits) > _ROWS:
            console.print(f"... and {len(waits) - _ROWS} more; -o json has them all")
        console.print()
    nodes = f"{len(after.table.nodes)} nodes"
    if not result.placements and not waits:
        console.print(f"no pending pods on {nodes}")
        return
    console.print(
        f"{len(result.placements)} placed, {len(waits)} pending on {nodes}; "
        f"{_proof(simulation)}, {simulation.seconds:.3f} s"
    )


def _proof(simulation: Simulation) -> str:
    result = simulation.result
    if not result.placements and not result.left:
        return "none of the pending pods can be planned"
    if simulation.gaps:
        return f"cost {result.cost}, not certified: the files lack what the plan depends on"
    if simulation.certified:
        return f"cost {result.cost}, certified: no plan costs less"
    return f"cost {result.cost}, at most {result.gap:.1%} of it more than the best plan"
