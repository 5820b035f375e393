"""``thalweg what-if``: two plans side by side."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import click
from rich.console import Console

from flowcore.api.kinds import POLICY
from flowcore.model.amount_text import short_amount
from flowcore.questions.scenario.alternatives.what_if import (
    Moved,
    PlanSummary,
    ResourceUse,
    WhatIfAnswer,
    WhatIfQuery,
    answer_what_if,
    resource_order,
)
from flowcore.questions.scenario.hypothetical.change_words import change_sentence
from flowcore.questions.scenario.hypothetical.changes import (
    AddNodes,
    Change,
    Cordon,
    Drain,
    FailDomain,
    PutObjects,
    PutPolicy,
    RemoveNode,
    SetPriority,
    Uncordon,
)
from thalweg.dumps.files import DumpError, display_name
from thalweg.dumps.reader import read_objects
from thalweg.sources.asking import tell
from thalweg.sources.source import SourceOperation, SourceOptions
from thalweg.terminal.consoles import stdout_console
from thalweg.terminal.tables import MAX_ROWS, print_table, print_truncated
from thalweg.terminal.telling import tell_error, tell_note

QUESTION = SourceOperation("what-if", WhatIfAnswer, answer_what_if)


def run_what_if(
    source: SourceOptions, given: Mapping[str, Sequence[str]], output: str, *, watch: bool, pods: bool = False
) -> None:
    """Asks and prints.

    Args:
        given: values of each option for changes, by the option's name with underscores.
        pods: print all pods, not a line for each workload.
    """
    if not any(given.values()):
        raise click.UsageError("name at least one change, such as --drain NODE")
    try:
        files = [*_objects(given["apply"]), *_policies(given["policy"])]
    except DumpError as error:
        tell_error(error)
        sys.exit(2)
    added = _added(given["add_nodes"], given["like"])

    def query(namespace: str) -> WhatIfQuery:
        return WhatIfQuery(
            [
                *files,
                *(_priority(each, namespace) for each in given["priority"]),
                *added,
                *map(Uncordon, given["uncordon"]),
                *map(Cordon, given["cordon"]),
                *map(Drain, given["drain"]),
                *map(RemoveNode, given["remove"]),
                *map(_failed, given["fail"]),
            ]
        )

    query("default")  # errors of usage come before a file or a cluster is read
    tell(source, QUESTION, query, partial(show, pods=pods), output=output, watch=watch)


def _objects(files: Iterable[str]) -> list[Change]:
    return [PutObjects(read_objects(name)) for name in files]


def _policies(files: Iterable[str]) -> list[Change]:
    changes: list[Change] = []
    for name in files:
        for manifest in read_objects(name):
            if manifest["kind"] != POLICY.kind:
                raise DumpError(
                    f"{display_name(name)}: {manifest['kind']} {manifest['metadata']['name']}: --policy takes "
                    f"{POLICY.kind} objects; give other objects to --apply"
                )
            changes.append(PutPolicy(manifest))
    return changes


def _added(counts: Sequence[str], likes: Sequence[str]) -> list[Change]:
    if len(counts) != len(likes):
        raise click.UsageError(
            f"{len(counts)} --add-nodes and {len(likes)} --like: give one --like NODE for each --add-nodes COUNT"
        )
    return [AddNodes(int(count), like) for count, like in zip(counts, likes, strict=True)]


def _priority(text: str, namespace: str) -> Change:
    pod, _, number = text.rpartition("=")
    try:
        priority = int(number)
    except ValueError:
        priority = 0
        pod = ""
    if not pod:
        raise click.UsageError(f'--priority "{text}": expected [NAMESPACE/]POD=NUMBER, such as shop/cart-0=1000')
    return SetPriority(pod if "/" in pod else f"{namespace}/{pod}", priority)


def _failed(text: str) -> Change:
    label, equals, value = text.partition("=")
    if not label or not equals:
        raise click.UsageError(f'--fail "{text}": expected LABEL=VALUE, such as zone=a')
    return FailDomain(label, value)


def show(answer: WhatIfAnswer, *, pods: bool = False) -> None:
    """Prints an answer for people: what it comes to, both plans, then the workloads or all pods."""
    console = stdout_console()
    for note in answer.notes:
        tell_note(note)
    console.print(f"{answer.in_short or _nothing(answer)}\n", markup=False)
    print_table(console, ("", "BEFORE", "AFTER", "CHANGE"), summary_rows(answer.before, answer.after))
    console.print()
    if pods:
        _print_pods(console, answer)
    else:
        _print(console, ("WORKLOAD", "CHANGE"), [(each.workload, change_sentence(each)) for each in answer.workloads])
    if answer.hidden:
        console.print(f"... and {answer.hidden} pods of namespaces that you may not read")


def _nothing(answer: WhatIfAnswer) -> str:
    """Where no number of pods differs."""
    return "the plan stays the same" if answer.same else "as many pods of each workload have a node as before"


def _print_pods(console: Console, answer: WhatIfAnswer) -> None:
    _print(console, ("NEWLY PLACED", "NODE"), [(key, answer.nodes[key]) for key in answer.placed])
    _print(console, ("NEWLY WAITING", "REASON"), [(key, answer.reasons[key]) for key in answer.waiting])
    _print(console, ("MOVED", "FROM", "TO"), _moves(answer.moved))
    _print(console, ("PLANNED ELSEWHERE", "FROM", "TO"), _moves(answer.replanned))
    _print(console, ("GONE",), [(key,) for key in answer.gone])


def summary_rows(before: PlanSummary, after: PlanSummary) -> list[tuple[str, str, str, str]]:
    """The two plans, number by number: what, before, after, the difference ("" where there is none)."""
    numbers = [
        ("nodes", before.nodes, after.nodes),
        ("pods with a node", before.with_node, after.with_node),
        ("waiting pods", before.waiting, after.waiting),
        ("of them evicted", before.evicted, after.evicted),
        ("moved pods", before.moved, after.moved),
    ]
    rows = [(name, str(old), str(new), f"{new - old:+d}" if old != new else "") for name, old, new in numbers]
    none = ResourceUse(0, 0)
    for name in resource_order(before, after):
        use_before, use_after = before.resources.get(name, none), after.resources.get(name, none)
        points = round(use_after.share * 100) - round(use_before.share * 100)
        change = f"{points:+d} {'point' if abs(points) == 1 else 'points'}" if points else ""
        rows.append((name, _use(name, use_before), _use(name, use_after), change))
    return rows


def _use(resource: str, use: ResourceUse) -> str:
    """Such as ``3.5/8 44%``."""
    return f"{short_amount(resource, use.requested)}/{short_amount(resource, use.allocatable)} {use.share:.0%}"


def _moves(moves: Mapping[str, Moved]) -> list[tuple[str, ...]]:
    return [(key, each.from_node, each.to_node) for key, each in moves.items()]


def _print(console: Console, titles: Sequence[str], rows: Sequence[tuple[str, ...]]) -> None:
    if not rows:
        return
    print_table(console, titles, rows[:MAX_ROWS])
    print_truncated(console, len(rows))
    console.print()
