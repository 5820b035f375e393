"""``thalweg simulate``: the real engine on a cluster dump."""

from __future__ import annotations

import sys
import time
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
from thalweg.dump import Dump, DumpError, read

#: Rows of a table that people read; ``-o json`` has them all.
_ROWS = 200


@dataclass(frozen=True, slots=True)
class Simulation:
    """A plan for a dump.

    Attributes:
        blocked: pods that no plan can place, with the reason.
    """

    result: RoundResult
    blocked: dict[str, str]
    seconds: float


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
    names, gangs = dump.gangs(policies)
    pending = tuple(
        PendingPod(
            key=pod.key,
            uid=pod.uid,
            pod_class=pod.pod_class,
            policy=governed[pod.key].name,
            created=pod.created,
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
    return Simulation(result, alone, time.perf_counter() - started)


def as_json(simulation: Simulation) -> dict[str, Any]:
    """What ``-o json`` prints."""
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
        "certified": result.certified,
        "bound": len(result.placements),
        "seconds": round(simulation.seconds, 6),
    }


def run_simulation(files: tuple[str, ...], output: str) -> None:
    """Reads, plans and prints; a file that cannot be read is one line and exit code 2."""
    try:
        dump = read(files)
    except DumpError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)
    waiting = len(dump.waiting())
    if sys.stderr.isatty():
        click.echo(f"planning {waiting} pending pods on {len(dump.nodes)} nodes ...", err=True)
    simulation = plan(dump, time.time())
    if output == "json":
        click.echo(msgspec.json.encode(as_json(simulation)))
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
    console.print(
        f"{len(result.placements)} placed, {len(waits)} pending on {len(after.table.nodes)} nodes; "
        f"cost {result.cost}, {_proof(result)}, {simulation.seconds:.3f} s"
    )


def _proof(result: RoundResult) -> str:
    if result.certified:
        return "certified: no plan costs less"
    return f"at most {result.gap:.1%} of it more than the best plan"
