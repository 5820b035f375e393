"""An audit as one file for a browser: no script, nothing from elsewhere, pictures inside, light and dark."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from html import escape
from typing import Final

from flowcore.model.amount_text import as_sentence, counted
from flowcore.questions.audit.answer_audit import AuditAnswer
from flowcore.questions.audit.finding import AuditFinding, StepAction, WitnessStep
from flowcore.questions.scenario.reading.moment import moment_text, seconds_of
from thalweg.audit.closed_table import CLOSED_HEAD, closed_table
from thalweg.audit.figure_texts import figure_texts
from thalweg.questions.status import age

#: Rows of a table; ``-o json`` has all.
_MAX_ROWS: Final = 500
_STEPS_HEAD: Final = ("", "step", "pod", "from", "to", "since its start or checkpoint")
_CLOSED_HEAD: Final = ("placed", "by", "when", "on", "in the plan", "reason", "pods that wait", "such as")
_NOT_JUDGED_HEAD: Final = ("pod", "reason")
_WIDTH: Final = 640
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #5d6675; --line: #d8dce3; --paper: #ffffff;
  --least: #1f6feb; --maybe: #9cc1f7; --rest: #e6e9ee; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --soft: #a3acba; --line: #39414e; --paper: #14181f;
    --least: #58a0ff; --maybe: #2c4a73; --rest: #262c36; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p.soft, figcaption { color: var(--soft); } figure { margin: .5rem 0; } svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: .9rem; } th, td { text-align: left; padding: .2rem .8rem .2rem 0;
  border-bottom: 1px solid var(--line); } td.number { text-align: right; }
.least { fill: var(--least); } .maybe { fill: var(--maybe); } .rest { fill: var(--rest); }
summary { cursor: pointer; }
"""


def audit_page(answer: AuditAnswer) -> str:
    """The page."""
    return "\n".join(_page(answer)) + "\n"


def _page(answer: AuditAnswer) -> Iterator[str]:
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Audit of placement</title>'
    yield f"<style>{_STYLE}</style></head><body>"
    yield "<h1>What placement costs</h1>"
    moment = f", as of {escape(answer.now)}" if answer.now else ""
    yield f'<p class="soft">{counted(answer.nodes, "node")}, {counted(answer.running, "running pod")}{moment}</p>'
    for finding in answer.findings:
        yield from _finding(finding, answer.plans.get(finding.plan, []))
    yield from _closed(answer)
    yield from _rest(answer)
    yield "</body></html>"


def _finding(finding: AuditFinding, steps: Sequence[WitnessStep]) -> Iterator[str]:
    yield f"<section><h2>{escape(finding.name)}</h2><p>{escape(as_sentence(finding.sentence))}</p>"
    if finding.now:
        yield _bar(finding)
    if steps:
        rows = [_step(number, step) for number, step in enumerate(steps, start=1)]
        yield _folded(f"The plan: {counted(len(steps), 'step')}", _table(_STEPS_HEAD, rows, numbers=(0,)))
    yield "</section>"


def _bar(finding: AuditFinding) -> str:
    """What there is now, as a bar: what a plan gains, what is open, and what no plan gains."""
    least = min(finding.at_least, finding.now)
    most = max(least, min(finding.at_most, finding.now))
    ends = [round(_WIDTH * amount / finding.now) for amount in (least, most, finding.now)]
    parts, start = list[str](), 0
    for kind, end in zip(("least", "maybe", "rest"), ends, strict=True):
        parts.append(f'<rect class="{kind}" x="{start}" y="0" width="{end - start}" height="24"/>')
        start = end
    figures = figure_texts(finding.resource, (finding.now, finding.at_least, finding.at_most))
    caption = "now {}: a plan avoids {}, no plan more than {}".format(*figures)
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH} 24" width="{_WIDTH}" height="24" role="img" aria-label="{caption}">'
        f"{''.join(parts)}</svg><figcaption>{caption}</figcaption></figure>"
    )


def _step(number: int, step: WitnessStep) -> tuple[str, ...]:
    since = "" if step.action is StepAction.PLACE else age(step.lost_seconds)
    return str(number), step.action.lower(), step.pod, step.from_node, step.node, since


def _closed(answer: AuditAnswer) -> Iterator[str]:
    """Whose placements closed the rooms of pods that the plans run, and when."""
    if not answer.closed:
        return
    closed = [room for room in answer.closed if room.pod]
    yield "<section><h2>Who closed the room, and when</h2>"
    if free := sum(room.pods for room in answer.closed if not room.pod):
        yield f"<p>The room of {counted(free, 'pod')} is free: no placement closed it.</p>"
    if closed:
        owners = closed_table(closed, seconds_of(answer.now), most=_MAX_ROWS)
        rows = [
            (room.pod, room.scheduler, moment_text(room.placed), room.node, room.to or "waits", room.reason,
             f"{room.pods:,}", room.waiting)
            for room in closed
        ]  # fmt: skip
        yield _table([title.lower() for title in CLOSED_HEAD], owners, numbers=(3,))
        yield _folded(counted(len(closed), "room"), _table(_CLOSED_HEAD, rows, numbers=(6,)))
    yield "</section>"


def _rest(answer: AuditAnswer) -> Iterator[str]:
    for title, sentences in (("Not known", answer.unknown), ("What may change the answer", answer.warnings)):
        if sentences:
            shown = sentences[:_MAX_ROWS]
            items = "".join(f"<li>{escape(sentence)}</li>" for sentence in shown)
            yield f"<h2>{title}</h2><ul>{items}</ul>{_more(len(sentences))}"
    if answer.not_judged:
        rows = [(waiting.pod, waiting.reason) for waiting in answer.not_judged]
        said = counted(len(answer.not_judged), "waiting pod")
        yield f"<h2>Not judged</h2>{_folded(said, _table(_NOT_JUDGED_HEAD, rows))}"


def _folded(said: str, table: str) -> str:
    return f"<details><summary>{said}</summary>{table}</details>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[int] = ()) -> str:
    """A table of texts.

    Args:
        numbers: places of the columns that stand on the right.
    """
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    lines = "".join(
        f"<tr>{''.join(_cell(text, number=place in numbers) for place, text in enumerate(row))}</tr>"
        for row in rows[:_MAX_ROWS]
    )
    return f"<table><tr>{titles}</tr>{lines}</table>{_more(len(rows))}"


def _more(count: int) -> str:
    """Says that there are more than are shown, if so."""
    return f"<p>... and {count - _MAX_ROWS:,} more; -o json has them all</p>" if count > _MAX_ROWS else ""


def _cell(text: str, *, number: bool) -> str:
    return f'<td class="number">{escape(text)}</td>' if number else f"<td>{escape(text)}</td>"
