"""An audit as one file for a browser: no script, nothing from elsewhere, pictures inside, light and dark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from flowcore.questions.audit.answer_audit import AuditAnswer
from flowcore.questions.audit.finding import AuditFinding, StepAction, WitnessStep
from thalweg.questions.status import age
from thalweg.terminal.tables import counted

#: Steps of a plan that are listed; ``-o json`` has all.
_MAX_STEPS: Final = 500
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
    yield from _rest(answer)
    yield "</body></html>"


def _finding(finding: AuditFinding, steps: Sequence[WitnessStep]) -> Iterator[str]:
    name = f"{finding.kind} {finding.resource}".strip()
    yield f"<section><h2>{escape(name)}</h2><p>{escape(finding.sentence)}.</p>"
    if finding.now:
        yield _bar(finding)
    if steps:
        yield f"<details><summary>The plan: {counted(len(steps), 'step')}</summary>{_table(steps)}</details>"
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
    caption = f"now {finding.now:,}: at least {finding.at_least:,} by a plan, at most {finding.at_most:,}"
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH} 24" width="{_WIDTH}" height="24" role="img" aria-label="{caption}">'
        f"{''.join(parts)}</svg><figcaption>{caption}</figcaption></figure>"
    )


def _table(steps: Sequence[WitnessStep]) -> str:
    head = "<tr><th></th><th>step</th><th>pod</th><th>from</th><th>to</th><th>price</th><th>lost work</th></tr>"
    rows = [_row(number, step) for number, step in enumerate(steps[:_MAX_STEPS], start=1)]
    more = f"<p>... and {len(steps) - _MAX_STEPS:,} more; -o json has them all</p>" if len(steps) > _MAX_STEPS else ""
    return f"<table>{head}{''.join(rows)}</table>{more}"


def _row(number: int, step: WitnessStep) -> str:
    leaves = step.action is not StepAction.PLACE
    price, lost = (f"{step.price:,}", age(step.lost_seconds)) if leaves else ("", "")
    cells = (step.action.lower(), step.pod, step.from_node, step.node)
    texts = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f'<tr><td class="number">{number}</td>{texts}<td class="number">{price}</td><td>{lost}</td></tr>'


def _rest(answer: AuditAnswer) -> Iterator[str]:
    if answer.unknown:
        sentences = "".join(f"<li>{escape(sentence)}</li>" for sentence in answer.unknown)
        yield f"<h2>Not known</h2><ul>{sentences}</ul>"
    if answer.not_judged:
        rows = "".join(
            f"<tr><td>{escape(each.pod)}</td><td>{escape(each.reason)}</td></tr>"
            for each in answer.not_judged[:_MAX_STEPS]
        )
        pods = counted(len(answer.not_judged), "waiting pod")
        yield f"<h2>Not judged</h2><details><summary>{pods}</summary><table>{rows}</table></details>"
