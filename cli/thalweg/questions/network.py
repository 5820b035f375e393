"""``thalweg network``: flow, price and limit of each arc of the networks of policies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click
import msgspec

from flowcore.model.amount_text import counted
from flowcore.model.networks import UNSCHEDULED
from flowcore.questions.scenario.flow.flow_arcs import FlowArc
from flowcore.questions.scenario.network_flow import NetworkAnswer, NetworkQuery, PolicyFlow, answer_network
from thalweg.sources.asking import tell
from thalweg.sources.source import SourceOperation, SourceOptions
from thalweg.terminal.consoles import stdout_console
from thalweg.terminal.printable import printable
from thalweg.terminal.tables import MAX_ROWS, print_table
from thalweg.terminal.telling import tell_note

QUESTION = SourceOperation("network", NetworkAnswer, answer_network, method="GET")
#: Rows of a policy, where the nodes are not asked for; ``-o json`` has all.
_FEW_ROWS: Final = 40
#: What stands in a column for nothing, where it is no dash; and what stands before a column's text in a graph.
_NOTHING: Final = {"STATE": "", "GAIN": "1"}
_IN_GRAPH: Final = (
    (" of ", "MAX"),
    (", at least ", "MIN"),
    (", gain ", "GAIN"),
    (", price ", "PRICE"),
    (", ", "STATE"),
)


def run_network(source: SourceOptions, asked: NetworkQuery, output: str, *, watch: bool) -> None:
    """Asks and prints; ``output``: "table", "dot", "json" or "yaml"."""
    if output == "dot":
        asked = msgspec.structs.replace(asked, most=MAX_ROWS)
    elif output == "table":
        asked = msgspec.structs.replace(asked, most=MAX_ROWS if asked.nodes else _FEW_ROWS)
    # A graph is for another program, as names are: nothing else is printed.
    show, output = (show_dot, "name") if output == "dot" else (show_tables, output)
    tell(source, QUESTION, lambda _: asked, show, output=output, watch=watch)


def show_tables(answer: NetworkAnswer) -> None:
    """Prints a table for each policy."""
    console = stdout_console()
    if not answer.policies:
        console.print("no pod is planned, so no policy has a flow; --policy shows the network of one")
    for place, flow in enumerate(answer.policies):
        for note in flow.notes:
            tell_note(note)
        if place:
            console.print()
        console.print(_heading(flow), markup=False)
        cells = [_cells(arc) for arc in flow.arcs]
        titles = [title for title in cells[0] if any(row[title] for row in cells)] if cells else []
        if titles:
            print_table(
                console, titles, [[row[title] or _NOTHING.get(title, "-") for title in titles] for row in cells]
            )
        if summed := _summed(flow):
            console.print(f"{summed}; -o json has all", markup=False)


def _heading(flow: PolicyFlow) -> str:
    waited = flow.placed + flow.left
    counts = f"{flow.placed:,} of {counted(waited, 'waiting pod')} placed" if waited else "no pod of it waits"
    return f"policy {flow.policy}{', by the network that it draws' if flow.drawn else ''}: {counts}"


def _summed(flow: PolicyFlow) -> str:
    """What is not said of each arc by itself; "": nothing."""
    return (
        f"{counted(flow.all_arcs, 'arc')} in {counted(len(flow.arcs), 'row')}" if flow.all_arcs > len(flow.arcs) else ""
    )


def _cells(arc: FlowArc) -> dict[str, str]:
    """What a table says of an arc, by column; "": nothing."""
    price = "" if arc.price is None else f"{arc.price:,}"
    return {
        "FROM": arc.tail,
        "TO": arc.head,
        "FLOW": f"{arc.flow:,}",
        "MIN": f"{arc.minimum:,}{' or none' if arc.whole_or_none else ''}" if arc.minimum else "",
        "MAX": "" if arc.maximum is None else f"{arc.maximum:,}",
        "PRICE": price if arc.price == arc.highest_price else f"{price}..{arc.highest_price:,}",
        "GAIN": "" if arc.gain == "1" else arc.gain,
        "STATE": _state(arc),
    }


def _state(arc: FlowArc) -> str:
    """The state of an arc; of one that stands for several, how many are in it."""
    some = f"{arc.full:,} of {arc.arcs:,} full" if arc.full else ""
    if arc.arcs == 1 or arc.state == "full":
        return arc.state
    return ", ".join(filter(None, [arc.state and f"some {arc.state}", some]))


def show_dot(answer: NetworkAnswer) -> None:
    """Prints a digraph of Graphviz, with a cluster for each policy: what is full is red."""
    click.echo("\n".join(("digraph thalweg {", "  rankdir=LR;", *map("  {}".format, _dot(answer)), "}")))


def _dot(answer: NetworkAnswer) -> Iterator[str]:
    for number, flow in enumerate(answer.policies):
        yield f"subgraph cluster_{number} {{"
        yield f"  label={_quoted(f'policy {flow.policy}')};"
        ends = {end: name for arc in flow.arcs for end, name in ((arc.start, arc.tail), (arc.end, arc.head))}
        for end, name in sorted(ends.items()):
            style = ", style=dashed" if name == UNSCHEDULED else ""
            yield f"  {_quoted(f'{flow.policy}: {end}')} [label={_quoted(name)}{style}];"
        for arc in flow.arcs:
            cells = _cells(arc)
            text = cells["FLOW"] + "".join(word + cells[title] for word, title in _IN_GRAPH if cells[title])
            style = ", color=red" if arc.state else ", style=dashed" if arc.head == UNSCHEDULED else ""
            ends_text = " -> ".join(_quoted(f"{flow.policy}: {end}") for end in (arc.start, arc.end))
            yield f"  {ends_text} [label={_quoted(text)}{style}];"
        notes = [*flow.notes, *filter(None, [_summed(flow)])]
        for number_of_note, note in enumerate(notes):
            yield f"  {_quoted(f'note {number_of_note}')} [shape=note, label={_quoted(note)}];"
        yield "}"


def _quoted(text: str) -> str:
    escaped = printable(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
