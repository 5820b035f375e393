"""How long answers about a cluster take (`thalweg why`, `what-if`, `headroom`, `audit`), beside one plan of it.

    python bench/questions.py
    python bench/questions.py --nodes 1000 -o json

No cluster takes part. Each scenario has 12 running pods on a node, and `--waiting` pods wait, one in ten for each kind
of reason (harness/scenarios.py). `why` is asked for a pod of each kind, without the search for fixes. `what-if` has two
plans or more; a failed zone plans a third of the running pods anew, so that question is the last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TypeVar

import click
import msgspec
from harness.conditions import conditions
from harness.scenarios import NOW, large_scenario
from harness.tables import console, print_conditions
from rich.table import Table

from flowcore.questions.audit.answer_audit import AuditQuery, answer_audit
from flowcore.questions.diagnosis.answers import WhyQuery
from flowcore.questions.diagnosis.why import answer_why
from flowcore.questions.scenario import Change, Scenario, plan_scenario
from flowcore.questions.scenario.alternatives.headroom import HeadroomQuery, answer_headroom
from flowcore.questions.scenario.alternatives.what_if import WhatIfQuery, answer_what_if
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.hypothetical.changes import AddNodes, Drain, FailDomain, SetPriority

_ZONE = "topology.kubernetes.io/zone"
_CONTEXT = AnswerContext(NOW)
_CLASS = HeadroomQuery(requests={"cpu": "500m", "memory": "1Gi"}, scale_ups=0)
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Row:
    """One answer.

    Attributes:
        question: for `why` the kind of the reason.
        plan: CPU seconds of one plan of the scenario, right before.
        seconds: CPU seconds of the answer.
        answer: in words.
    """

    nodes: int
    question: str
    plan: float
    seconds: float
    answer: str


def _pods(waiting: int) -> tuple[str, ...]:
    """A waiting pod for each kind of reason, and one that the plan places."""
    return "large-0", "picky-1", f"alone-{waiting - 8}", "gang-3", "part-4", f"rival-{waiting - 125}", "fits-6"


def _why(scenario: Scenario, pod: str) -> tuple[str, str]:
    kind = answer_why(scenario, WhyQuery(f"default/{pod}", fixes=False), _CONTEXT).kind.value
    return f"why: {kind}", pod


def _what_if(scenario: Scenario, question: str, *changes: Change) -> tuple[str, str]:
    answer = answer_what_if(scenario, WhatIfQuery(list(changes)), _CONTEXT)
    return question, f"{len(answer.placed)} placed, {len(answer.waiting)} waiting, {len(answer.moved)} moved"


def _headroom(scenario: Scenario, question: str, query: HeadroomQuery) -> tuple[str, str]:
    room = answer_headroom(scenario, query, _CONTEXT)
    first = "".join(f"{each.count} nodes place {each.pods}" for each in room.scale_ups[:1])
    fits = "" if room.fits is None else f"{'at least ' if room.at_least else ''}{room.fits} fit"
    return question, fits or first


def _audit(scenario: Scenario) -> tuple[str, str]:
    findings = answer_audit(scenario, AuditQuery(), _CONTEXT).findings
    return "an audit", ", ".join(f"{each.name} {each.at_least} to {each.at_most}" for each in findings)


def _questions(scenario: Scenario) -> Iterator[Callable[[], tuple[str, str]]]:
    """Each gives the question and the answer in words."""
    node, waiting = next(iter(scenario.cluster.nodes)), next(iter(scenario.cluster.waiting))
    zone = dict(scenario.cluster.nodes[node].labels)[_ZONE]
    for pod in _pods(len(scenario.cluster.waiting)):
        yield lambda pod=pod: _why(scenario, pod)
    yield lambda: _what_if(scenario, "no change")
    yield lambda: _what_if(scenario, "one node is drained", Drain(node))
    yield lambda: _headroom(scenario, "headroom of a class", _CLASS)
    yield lambda: _what_if(scenario, "10 nodes come", AddNodes(10, node))
    yield lambda: _what_if(scenario, "a pod has a higher priority", SetPriority(waiting, 1000))
    yield lambda: _headroom(scenario, "nodes that help", HeadroomQuery())
    yield lambda: _what_if(scenario, "a zone of three fails", FailDomain(_ZONE, zone))


def measure(nodes: int, pods: int) -> Iterator[Row]:
    """A row for each question to a cluster of so many nodes, where so many pods wait."""
    yield from _rows(large_scenario(nodes, pods), _questions)
    yield from _rows(large_scenario(nodes, pods, movable=True), lambda scenario: [lambda: _audit(scenario)])


def _rows(
    scenario: Scenario, questions: Callable[[Scenario], Iterable[Callable[[], tuple[str, str]]]]
) -> Iterator[Row]:
    plan_scenario(scenario, NOW)  # what is computed once for a cluster
    for ask in questions(scenario):
        plan, _ = _timed(lambda: plan_scenario(scenario, NOW))
        seconds, (question, answer) = _timed(ask)
        yield Row(len(scenario.cluster.nodes), question, plan, seconds, answer)


def _timed(call: Callable[[], _Answer]) -> tuple[float, _Answer]:
    started = time.process_time()
    answer = call()
    return time.process_time() - started, answer


@click.command()
@click.option("--nodes", "sizes", type=int, multiple=True, default=(1000, 12_500), show_default=True)
@click.option("--waiting", default=1000, show_default=True, type=click.IntRange(min=130), help="A multiple of ten.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(sizes: tuple[int, ...], waiting: int, output: str) -> None:
    """Measures and prints."""
    told, rows = conditions(), []
    for row in (row for size in sizes for row in measure(size, waiting)):
        click.echo(f"{row.nodes} nodes, {row.question}: {row.seconds:.2f} of {row.plan:.2f} s, {row.answer}", err=True)
        rows.append(row)
    if output == "json":
        click.echo(msgspec.json.encode({"conditions": told, "rows": [asdict(row) for row in rows]}))
        return
    print_conditions(told)
    table = Table("nodes", "question", "plan s", "answer s", "plans", "answer", box=None, pad_edge=False)
    for row in rows:
        plans = f"{row.seconds / row.plan:.1f}"
        table.add_row(str(row.nodes), row.question, f"{row.plan:.2f}", f"{row.seconds:.2f}", plans, row.answer)
    console.print(table)


if __name__ == "__main__":
    main()
