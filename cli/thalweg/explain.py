"""``thalweg explain``: may each waiting pod go to each node of a cluster dump, and if not, why not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flowcore.classes import group
from flowcore.explain import no_domain, summary
from flowcore.filters import Verdicts, judge
from flowcore.model.pods import Pod
from flowcore.model.policies import Delivery
from flowcore.model.snapshot import NodeTable, PendingPod, build_snapshot
from flowcore.model.storage import Storage
from flowcore.rounds import under_constraints
from thalweg.dump import Dump
from thalweg.files import DumpError
from thalweg.gaps import gaps, refuse_unknown_governors, unknown_claims, without_claims
from thalweg.reader import read

#: Rows of a table that people read; ``-o json`` has them all.
_ROWS = 200


class UnknownPodError(Exception):
    """A pod that was asked about and does not wait in the dump; the message says what it does instead."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A waiting pod with its verdicts. Pods that filters cannot tell apart share theirs.

    Attributes:
        gang: why it waits wherever there is room: what is the matter with its gang; "" where nothing is.
    """

    pod: Pod
    verdicts: Verdicts
    gang: str = ""


def asked_about(dump: Dump, names: tuple[str, ...]) -> list[Pod]:
    """The waiting pods of these names, in this order and each once; all of them when there are no names.

    Args:
        names: ``namespace/name``, or a name in the namespace ``default``.

    Raises:
        UnknownPodError: a name is no waiting pod's.
    """
    if not names:
        return dump.waiting()
    waiting = {pod.key: pod for pod in dump.waiting()}
    found = {}
    for name in names:
        key = name if "/" in name else f"default/{name}"
        pod = dump.pods.get(key)
        if pod is None:
            raise UnknownPodError(f"pod {key}: there is no such pod in the dump")
        if pod.terminal:
            raise UnknownPodError(f"pod {key}: it has run to its end and waits for no node")
        if pod.node_name:
            raise UnknownPodError(
                f"pod {key}: it has its node already, {pod.node_name}; only pods that wait are explained"
            )
        found[key] = waiting[key]
    return list(found.values())


def explain(dump: Dump, pods: list[Pod]) -> Iterator[Explanation]:
    """Verdicts for the state as it stands, under the policies of the dump; no waiting pod is placed before another one.

    Args:
        pods: those to explain, of the dump's waiting ones.
    """
    running, policies = dump.running(), dump.in_force()
    seen = build_snapshot(
        generation=0,
        now=0.0,
        table=NodeTable.of(dump.nodes.values()),
        running=((pod.node_name, pod.usage, pod.pod_class.host_ports) for pod in running),
        pending=tuple(
            PendingPod(pod.key, pod.uid, pod.pod_class, dump.policy_of(pod, policies).name, kind=pod.kind)
            for pod in dump.waiting()
        ),
        neighbours=dump.neighbours(),
        storage=Storage.of(dump.storage.values(), ((pod.node_name, pod.pod_class.volumes) for pod in running)),
    )
    snapshot, _ = under_constraints(seen, policies)
    groups = {pod.key: found for found in group(snapshot.pending, snapshot.neighbours) for pod in found.pods}
    names, gangs = dump.gangs(policies)
    flaws = {gang.name: gang.flaw or no_domain(gang, snapshot.table) for gang in gangs}
    unknown = unknown_claims(dump, pods)
    known: dict[int, Verdicts] = {}
    for pod in pods:
        found = groups[pod.key]
        if id(found) not in known:
            verdicts = judge(found.pod_class, snapshot, found.kind)
            known[id(found)] = without_claims(verdicts) if pod.key in unknown else verdicts
        flaw = next((flaws[name] for name in names.get(pod.key, ()) if flaws[name]), "")
        yield Explanation(pod, known[id(found)], flaw)


def as_json(explanations: Iterator[Explanation]) -> list[dict[str, Any]]:
    """What ``-o json`` prints."""
    nodes: dict[int, msgspec.Raw] = {}
    found = []
    for each in explanations:
        kind = id(each.verdicts)  # alive as long as the explanations go on
        if kind not in nodes:
            nodes[kind] = msgspec.Raw(msgspec.json.encode(_by_node(each.verdicts)))
        entry: dict[str, Any] = {"pod": each.pod.key, "nodes": nodes[kind]}
        if each.gang:
            entry["gang"] = each.gang
        alone = each.pod.left_alone(Delivery.BINDER)
        found.append({**entry, "blocked": alone} if alone else entry)
    return found


def _by_node(verdicts: Verdicts) -> dict[str, dict[str, Any]]:
    found = {}
    for at, node in enumerate(verdicts.table.nodes):
        by, reason = verdicts.of_node(at)
        found[node.name] = {"fits": bool(verdicts.fits[at]), "filter": by, "reason": reason}
    return found


def run_explanation(names: tuple[str, ...], files: tuple[str, ...], output: str) -> None:
    """Reads, judges and prints; what cannot be read or is not there is one line and exit code 2."""
    try:
        dump = read(files)
        refuse_unknown_governors(dump)
        pods = asked_about(dump, names)
    except (DumpError, UnknownPodError) as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)
    for warning in (*dump.warnings, *gaps(dump, pods)):
        click.echo(f"Warning: {warning}", err=True)
    if output == "json":
        click.echo(msgspec.json.encode(as_json(explain(dump, pods))))
    elif names:
        _print_nodes(explain(dump, pods))
    else:
        _print_pods(explain(dump, pods), len(pods))


def _print_pods(explanations: Iterator[Explanation], count: int) -> None:
    console = Console()
    if not count:
        console.print("no pod waits")
        return
    table = Table("POD", "VERDICT", box=None, pad_edge=False)
    for _, each in zip(range(_ROWS), explanations, strict=False):
        table.add_row(each.pod.key, escape(_in_words(each)))
    console.print(table)
    if count > _ROWS:
        console.print(f"... and {count - _ROWS} more; -o json has them all")


def _print_nodes(explanations: Iterator[Explanation]) -> None:
    console = Console()
    for at, each in enumerate(explanations):
        if at:
            console.print()
        console.print(f"{each.pod.key}: {_in_words(each)}", markup=False, highlight=False)
        table = Table("NODE", "FITS", "FILTER", "REASON", box=None, pad_edge=False)
        for row, node in enumerate(each.verdicts.table.nodes[:_ROWS]):
            by, reason = each.verdicts.of_node(row)
            table.add_row(node.name, "no" if by else "yes", by, escape(reason))
        if each.verdicts.table.nodes:
            console.print(table)
        left = len(each.verdicts.table.nodes) - _ROWS
        if left > 0:
            console.print(f"... and {left} more; -o json has them all")


def _in_words(each: Explanation) -> str:
    text, alone = summary(each.verdicts), each.pod.left_alone(Delivery.BINDER)
    if each.gang:
        text += f" {each.gang[:1].upper()}{each.gang[1:]}."
    return f"{text} Thalweg leaves it alone: {alone}." if alone else text
