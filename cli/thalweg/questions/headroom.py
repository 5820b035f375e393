"""``thalweg headroom``: how many more pods fit, and which new nodes help."""

from __future__ import annotations

from functools import partial

import msgspec
from rich.console import Console

from flowcore.model.amount_text import counted, requested_amount
from flowcore.planning.problem.left_at_least import counted_amount
from flowcore.questions.scenario.alternatives.headroom import HeadroomAnswer, HeadroomQuery, answer_headroom
from flowcore.questions.scenario.alternatives.unneeded_nodes import UnneededNodes
from thalweg.sources.asking import tell
from thalweg.sources.source import SourceOperation, SourceOptions
from thalweg.terminal.consoles import stdout_console
from thalweg.terminal.tables import print_names, print_table
from thalweg.terminal.telling import tell_note

QUESTION = SourceOperation("headroom", HeadroomAnswer, answer_headroom)
#: Pods named in a cell, and moves in a table; ``-o json`` has all.
_MAX_NAMES, _MAX_MOVES = 3, 10


def run_headroom(source: SourceOptions, asked: HeadroomQuery, output: str, *, watch: bool) -> None:
    """Asks and prints.

    Args:
        asked: the question; names in it may lack their namespace.
    """

    def query(namespace: str) -> HeadroomQuery:
        named = asked.like if "/" in asked.like or not asked.like else f"{namespace}/{asked.like}"
        return msgspec.structs.replace(asked, like=named, namespace=namespace)

    put = names if output == "name" else partial(show, wide=output == "wide")
    tell(source, QUESTION, query, put, output=output, watch=watch)


def names(answer: HeadroomAnswer) -> None:
    """Prints the nodes that take more pods; where none are counted, those that are worth nothing now."""
    nodes = [] if answer.unneeded is None else answer.unneeded.nodes
    print_names(f"node/{name}" for name in (nodes if answer.fits is None else answer.nodes))


def show(answer: HeadroomAnswer, *, wide: bool = False) -> None:
    """Prints an answer for people; ``wide``: with all nodes, names and moves."""
    console = stdout_console()
    for note in answer.notes:
        tell_note(note)
    if answer.fits is not None:
        asked = [f"{requested_amount(name, value)} {name}" for name, value in answer.requests.items()]
        asks = ", ".join(asked) or "no resource"
        least = "at least " if answer.at_least else ""
        where = f" on {counted(len(answer.nodes), 'node')}" if answer.nodes else ""
        claims = f" and claims {', '.join(answer.claims)}" if answer.claims else ""
        taints = f" and tolerates {', '.join(answer.tolerates)}" if answer.tolerates else ""
        room = f"room for {least}{counted(answer.fits, 'more pod')}{where}"
        console.print(f"{room}; each requests {asks}{claims}{taints}", markup=False)
        if answer.reason:
            console.print(f"no room for one more: {answer.reason}", markup=False)
        if wide and answer.nodes:
            console.print()
            print_table(console, ("NODE", "MORE PODS"), [(name, f"{more:,}") for name, more in answer.nodes.items()])
    if answer.fits is None or answer.tried:
        if answer.fits is not None:
            console.print()
        _show_new_nodes(console, answer, wide=wide)
    if answer.unneeded is not None:
        console.print()
        _show_unneeded(console, answer.unneeded, wide=wide)


def _show_new_nodes(console: Console, answer: HeadroomAnswer, *, wide: bool) -> None:
    if not answer.waiting:
        console.print("no pod waits, so no new node helps")
        return
    left = answer.counts.sentence
    if not answer.tried:
        console.print(f"{left}; no new nodes were tried")
        return
    apart = "; each line below is a way of its own" if len(answer.scale_ups) > 1 else ""
    console.print(f"{left}; new nodes may help {answer.more_nodes_help:,} of them{apart}")
    if answer.scale_ups:
        rows = [
            (
                f"{'at most ' if scale_up.at_most else ''}{scale_up.count}",
                scale_up.like,
                _worth(scale_up.pods, scale_up.amount, answer.resource),
                _some(scale_up.places, scale_up.pods, wide=wide),
            )
            for scale_up in answer.scale_ups
        ]
        print_table(console, ("NEW NODES", "LIKE", "PLACE", "PODS"), rows)
        console.print(_worth_most(answer), markup=False)
    else:
        console.print("no node like those that are there would take one of them")


def _worth_most(answer: HeadroomAnswer) -> str:
    """Which of the new nodes places most, node by node."""
    best = max(answer.scale_ups, key=lambda shape: (shape.pods / shape.count, shape.amount / shape.count, -shape.count))
    placed = _worth(best.pods / best.count, best.amount / best.count, answer.resource)
    return f"worth most: a node like {best.like}, which places {placed} on average"


def _worth(pods: float, amount: float, resource: str) -> str:
    shown = f"{round(pods, 1):,g} {'pod' if pods == 1 else 'pods'}"
    return f"{shown} with {counted_amount(resource, round(amount, 1))}" if amount else shown


def _show_unneeded(console: Console, unneeded: UnneededNodes, *, wide: bool) -> None:
    if not unneeded.nodes:
        tried = f", by {counted(unneeded.plans, 'plan')}" if unneeded.plans else ""
        console.print(f"no node was found that is worth nothing{tried}")
        return
    which = f"{counted(len(unneeded.nodes), 'node')} {'is' if len(unneeded.nodes) == 1 else 'are'} worth nothing now"
    console.print(f"{which}: {', '.join(unneeded.nodes)}", markup=False)
    moved = counted(unneeded.pods, "pod") if unneeded.pods else "none"
    without = "it" if len(unneeded.nodes) == 1 else "them"
    console.print(
        f"drain {without}: in a plan without {without} every pod that has a node keeps one; {moved} would move"
    )
    moves = list(unneeded.moves.items())[: None if wide else _MAX_MOVES]
    rows = [(pod, moved.from_node, moved.to_node) for pod, moved in moves]
    if rows:
        print_table(console, ("POD", "FROM", "TO"), rows)
    if unneeded.pods > len(rows):
        console.print(f"and {unneeded.pods - len(rows)} more" + ("" if wide else "; -o wide has all"))


def _some(names: list[str], count: int, *, wide: bool) -> str:
    shown = names[: None if wide else _MAX_NAMES]
    more = count - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more and shown else "" if shown else f"{count} hidden")
