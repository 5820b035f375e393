"""``thalweg audit --since 7d``: what the audits of an operator said, and whose placements closed rooms."""

from __future__ import annotations

from thalweg_view.pictures.regret import RegretAnswer, RegretLine, RegretQuery, answer_regret
from thalweg_view.view_data import ViewData

from flowcore.model.amount_text import counted
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.reading.moment import moment_text
from thalweg.audit.closed_table import CLOSED_HEAD, closed_table
from thalweg.audit.figure_texts import AVOIDED, figure_texts
from thalweg.sources.asking import tell
from thalweg.sources.source import SourceOperation, SourceOptions
from thalweg.terminal.consoles import stdout_console
from thalweg.terminal.tables import print_table


def of_dump(scenario: Scenario, query: RegretQuery, context: AnswerContext) -> RegretAnswer:
    """What the operator kept of audits when it wrote the dump."""
    return answer_regret(ViewData(scenario), query, context)


QUESTION = SourceOperation("regret", RegretAnswer, of_dump, method="GET")


def run_since(source: SourceOptions, seconds: int, output: str) -> None:
    """Asks for the audits of the last so many seconds, and prints them."""
    tell(source, QUESTION, lambda _: RegretQuery(since=seconds), show, output=output)


def show(answer: RegretAnswer) -> None:
    """Prints what audits said for people."""
    console = stdout_console()
    if not answer.time:
        console.print("No audit of this time is kept. An operator audits with --audit-interval.")
        return
    span = f"{moment_text(answer.time[0])} to {moment_text(answer.time[-1])}"
    console.print(f"{counted(len(answer.time), 'audit')} from {span}\n", markup=False)
    print_table(console, ("FINDING", AVOIDED[0], "LOWEST", "HIGHEST", AVOIDED[1]), map(_line, answer.lines))
    if closed := closed_table(answer.closed, answer.time[-1]):
        console.print()
        print_table(console, CLOSED_HEAD, closed)
    if answer.hidden:
        console.print(f"Not shown: {counted(answer.hidden, 'placement')} of other namespaces")


def _line(line: RegretLine) -> tuple[str, ...]:
    """The newest figures, and the least and the most that was avoidable in all these audits."""
    least = [number for number in line.at_least if number is not None]
    shown = (line.at_least[-1], min(least, default=None), max(least, default=None), line.at_most[-1])
    name = "/".join(filter(None, (line.finding, line.resource)))
    return name, *figure_texts(line.resource, shown)
