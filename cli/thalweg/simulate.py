"""``thalweg simulate``: plans the pending pods of a cluster dump with the operator's planner."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import islice
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from flowcore.classes import group
from flowcore.cluster.assembly import to_snapshot
from flowcore.cluster.queue_usage import queue_state
from flowcore.cluster.snapshot import PendingPod, Snapshot
from flowcore.explain import node_reasons
from flowcore.learning import learnt_costs
from flowcore.model.policies import Policy
from flowcore.planning import Placement, RoundResult, run_round
from thalweg import evictions
from thalweg.dump import ClusterDump, GovernedDump
from thalweg.files import DumpError
from thalweg.measured import measured_usage
from thalweg.missing_objects import check_namespaces_known, missing_objects, pods_with_unknown_claims
from thalweg.reader import read_dump
from thalweg.tables import MAX_ROWS, print_truncated
from thalweg_cost_models import find_models

_UNGOVERNED = "no policy governs it"


@dataclass(frozen=True, slots=True)
class Simulation:
    """A plan for a dump.

    Attributes:
        skipped: keys of pods that may not be planned, and the reason.
        gaps: sentences about missing objects that may change the plan; with any of them the plan is not certified.
        warnings: sentences about nodes and samples that are not measured; requests count there.
    """

    result: RoundResult
    skipped: dict[str, str]
    seconds: float
    gaps: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def certified(self) -> bool:
        """Whether the plan is proven optimal for the cluster."""
        return self.result.certified and not self.gaps


def plan(dump: ClusterDump, now: float, *, reschedule: bool = False, only: str = "") -> Simulation:
    """Plans every pending pod of a dump, and which running pods leave.

    Args:
        now: seconds since the epoch, for waiting times and ages.
        reschedule: as if every policy had ``rescheduling: {mode: Act}``.
        only: key of the one pod to plan; "": all.
    """
    started = time.perf_counter()
    governed = GovernedDump(dump, reschedule=reschedule)
    waiting = [pod for pod in dump.waiting() if only in ("", pod.key)]
    policies = {pod.key: governed.policy_of(pod) for pod in waiting}
    skipped = {pod.key: reason for pod in waiting if (reason := pod.skip_reason(policies[pod.key].delivery))}
    if dump.complete:
        skipped |= {pod.key: _UNGOVERNED for pod in waiting if not governed.governs(pod)}
    planned = [pod for pod in waiting if pod.key not in skipped]
    skipped |= pods_with_unknown_claims(dump, planned)
    gang_names, gangs = governed.gangs(waiting)
    measured = measured_usage(dump, policies)
    pending = tuple(
        PendingPod(
            key=pod.key,
            uid=pod.uid,
            pod_class=pod.pod_class,
            policy=policies[pod.key].name,
            created=pod.created,
            plannable_since=pod.unschedulable_since,
            signature=pod.signature,
            queue=dump.cluster.queues.of(pod, dump.cluster.namespaces),
            victim=governed.victim_of(pod),
            gangs=gang_names[pod.key],
            preempts=pod.preempts and not governed.waits_for_terminating(pod),
            foreseen=measured.of(pod),
        )
        for pod in planned
        if pod.key not in skipped
    )
    snapshot = to_snapshot(
        dump.cluster,
        now=now,
        pending=pending,
        gangs=gangs,
        persistent_usage=governed.persistent_usage(),
        queues=queue_state(dump.cluster),
        running=governed.running_pods(now, {pod.victim.key for pod in pending if pod.victim is not None}),
        measured=measured.loads,
    )
    with redirect_stdout(sys.stderr):  # output of plug-ins must not mix with the plan
        result = run_round(snapshot, with_learnt_costs(governed.policies, dump, now), find_models().usable)
    return Simulation(
        result,
        skipped,
        time.perf_counter() - started,
        tuple(missing_objects(dump, planned)),
        measured.warnings,
    )


def with_learnt_costs(policies: Mapping[str, Policy], dump: ClusterDump, now: float) -> dict[str, Policy]:
    """The policies, those that learn with what the finished pods of a dump tell.

    Args:
        now: seconds since the epoch.
    """
    cluster = dump.cluster
    return {
        name: msgspec.structs.replace(policy, cost=learnt_costs(policy.cost, cluster.pods.values(), cluster.nodes, now))
        if policy.cost.learn
        else policy
        for name, policy in policies.items()
    }


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
        check_namespaces_known(dump)
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
