"""``thalweg headroom``: how many more pods fit, and which new nodes help."""

from __future__ import annotations

import click
import msgspec

from flowcore.model.amount_text import short_amount
from flowcore.questions.scenario.alternatives.headroom import HeadroomAnswer, HeadroomQuery, answer_headroom
from thalweg.sources.asking import tell
from thalweg.sources.source import SourceOperation, SourceOptions
from thalweg.terminal.tables import counted, print_table, stdout_console

QUESTION = SourceOperation("headroom", HeadroomAnswer, answer_headroom)
#: Pods named in a cell; ``-o json`` has all.
_MAX_NAMES = 3


def run_headroom(source: SourceOptions, asked: HeadroomQuery, output: str, *, watch: bool) -> None:
    """Asks and prints.

    Args:
        asked: the question; names in it may lack their namespace.
    """

    def query(namespace: str) -> HeadroomQuery:
        named = asked.like if "/" in asked.like or not asked.like else f"{namespace}/{asked.like}"
        return msgspec.structs.replace(asked, like=named, namespace=namespace)

    tell(source, QUESTION, query, show, output=output, watch=watch)


def show(answer: HeadroomAnswer) -> None:
    """Prints an answer for people."""
    console = stdout_console()
    for note in answer.notes:
        click.echo(f"Note: {note}", err=True)
    if answer.fits is not None:
        asks = (
            ", ".join(f"{short_amount(name, value)} {name}" for name, value in answer.requests.items()) or "no resource"
        )
        least = "at least " if answer.at_least else ""
        where = f" on {counted(len(answer.nodes), 'node')}" if answer.nodes else ""
        claims = f" and claims {', '.join(answer.claims)}" if answer.claims else ""
        taints = f" and tolerates {', '.join(answer.tolerates)}" if answer.tolerates else ""
        room = f"room for {least}{counted(answer.fits, 'more pod')}{where}"
        console.print(f"{room}; each requests {asks}{claims}{taints}", markup=False)
        if answer.reason:
            console.print(f"no room for one more: {answer.reason}", markup=False)
        console.print()
    if not answer.waiting:
        console.print("no pod waits, so no new node helps")
        return
    left = f"{counted(answer.waiting, 'waiting pod')} without a node in the plan"
    if not answer.tried:
        console.print(f"{left}; no new nodes were tried")
        return
    console.print(f"{left}; new nodes may help {answer.more_nodes_help} of them")
    if answer.scale_ups:
        rows = [
            (str(scale_up.count), scale_up.like, str(scale_up.pods), _some(scale_up.places, scale_up.pods))
            for scale_up in answer.scale_ups
        ]
        print_table(console, ("NEW NODES", "LIKE", "PLACE", "PODS"), rows)
    else:
        console.print("no node like those that are there would take one of them")


def _some(names: list[str], count: int) -> str:
    shown = names[:_MAX_NAMES]
    more = count - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more and shown else "" if shown else f"{count} hidden")
