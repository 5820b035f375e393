"""How long `thalweg what-if` and `thalweg headroom` take beside one plan of the same cluster.

    python bench/what_if.py
    python bench/what_if.py --nodes 1000 -o json

No cluster takes part. The scenarios are those of ``bench/why.py``: 12 running pods on a node, 1,000 that wait. For each
question: CPU seconds of the answer, which has two plans or more, and of what is not planning: the changes are made and
taken back without a plan.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TypeVar

import click
import msgspec
from harness.conditions import conditions
from harness.scenarios import NOW, large_scenario
from harness.tables import console, print_conditions
from rich.table import Table

from flowcore.questions.scenario import Change, Scenario, applied, plan_scenario
from flowcore.questions.scenario.alternatives.headroom import HeadroomQuery, answer_headroom
from flowcore.questions.scenario.alternatives.what_if import WhatIfQuery, answer_what_if
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.hypothetical.changes import AddNodes, Drain, FailDomain, SetPriority

_WAITING = 1000
_ZONE = "topology.kubernetes.io/zone"
_CONTEXT = AnswerContext(NOW)
_CLASS = HeadroomQuery(requests={"cpu": "500m", "memory": "1Gi"}, scale_ups=0)
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class Row:
    """One answer.

    Attributes:
        plan: CPU seconds of one plan of the scenario, right before.
        seconds: of the answer.
        changing: CPU seconds in which the changes are made and taken back.
        found: the answer in words.
    """

    nodes: int
    question: str
    plan: float
    seconds: float
    changing: float
    found: str

    @property
    def plans(self) -> float:
        """The time of the answer in plans."""
        return self.seconds / self.plan


@click.command()
@click.option("--nodes", "sizes", type=int, multiple=True, default=(1000, 12_500), show_default=True)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(sizes: tuple[int, ...], output: str) -> None:
    """Measures and prints."""
    found = conditions()
    rows = []
    for row in (row for size in sizes for row in _measure(size)):
        click.echo(f"{row.nodes} nodes, {row.question}: {row.seconds:.2f} of {row.plan:.2f} s, {row.found}", err=True)
        rows.append(row)
    if output == "json":
        click.echo(msgspec.json.encode({"conditions": found, "rows": [asdict(row) for row in rows]}))
        return
    print_conditions(found)
    table = Table("nodes", "question", "plan s", "answer s", "plans", "changing s", "found", box=None, pad_edge=False)
    for row in rows:
        table.add_row(
            str(row.nodes), row.question, f"{row.plan:.2f}", f"{row.seconds:.2f}", f"{row.plans:.1f}",
            f"{row.changing:.3f}", row.found,
        )  # fmt: skip
    console.print(table)


def _measure(size: int) -> Iterator[Row]:
    scenario = large_scenario(size, _WAITING)
    plan_scenario(scenario, NOW)  # what is computed once for a cluster
    node, pod = next(iter(scenario.cluster.nodes)), next(iter(scenario.cluster.waiting))
    zone = dict(scenario.cluster.nodes[node].labels)[_ZONE]
    yield _what_if(scenario, size, "no change", [])
    yield _what_if(scenario, size, "one node is drained", [Drain(node)])
    yield _headroom(scenario, size, "headroom of a class", _CLASS)
    yield _what_if(scenario, size, "10 nodes come", [AddNodes(10, node)])
    yield _what_if(scenario, size, "a pod has a higher priority", [SetPriority(pod, 1000)])
    yield _headroom(scenario, size, "nodes that help", HeadroomQuery())
    yield _what_if(scenario, size, "a zone of three fails", [FailDomain(_ZONE, zone)])


def _what_if(scenario: Scenario, size: int, question: str, changes: list[Change]) -> Row:
    plan, _ = _timed(lambda: plan_scenario(scenario, NOW))
    changing, _ = _timed(lambda: _change(scenario, changes))
    seconds, answer = _timed(lambda: answer_what_if(scenario, WhatIfQuery(changes), _CONTEXT))
    found = f"{len(answer.placed)} placed, {len(answer.waiting)} waiting, {len(answer.moved)} moved"
    return Row(size, question, plan, seconds, changing, found)


def _headroom(scenario: Scenario, size: int, question: str, query: HeadroomQuery) -> Row:
    plan, _ = _timed(lambda: plan_scenario(scenario, NOW))
    seconds, room = _timed(lambda: answer_headroom(scenario, query, _CONTEXT))
    first = "".join(f"{each.count} nodes place {each.pods}" for each in room.scale_ups[:1])
    fits = "" if room.fits is None else f"{'at least ' if room.at_least else ''}{room.fits} fit"
    return Row(size, question, plan, seconds, 0.0, fits or first)


def _change(scenario: Scenario, changes: list[Change]) -> None:
    with applied(scenario, changes, _CONTEXT):
        pass


def _timed(call: Callable[[], _Found]) -> tuple[float, _Found]:
    started = time.process_time()
    found = call()
    return time.process_time() - started, found


if __name__ == "__main__":
    main()
