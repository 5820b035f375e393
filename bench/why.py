"""How long `thalweg why` takes beside one plan of the same cluster.

    python bench/why.py
    python bench/why.py --nodes 1000 -o json

No cluster takes part. Each scenario has 12 running pods on a node and 1,000 waiting ones, one in ten for each kind of
reason (harness/scenarios.py). For each kind: the answer without the search for fixes, in seconds and in plans.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TypeVar

import click
import msgspec
from harness.conditions import conditions
from harness.scenarios import NOW, large_scenario
from harness.tables import console, print_conditions
from rich.table import Table

from flowcore.questions.diagnosis.answers import WhyQuery
from flowcore.questions.diagnosis.why import answer_why
from flowcore.questions.scenario import Scenario, plan_scenario
from flowcore.questions.scenario.context import AnswerContext

TARGETS = ("large-0", "picky-1", "alone-992", "gang-3", "part-4", "rival-875", "fits-6")
_WAITING = 1000
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class Row:
    """One answer.

    Attributes:
        plan: seconds of one plan of the scenario, right before.
        seconds: of the answer, which makes a plan.
    """

    nodes: int
    pod: str
    kind: str
    plan: float
    seconds: float

    @property
    def plans(self) -> float:
        """The time of the answer in plans."""
        return self.seconds / self.plan


@click.command()
@click.option("--nodes", "sizes", type=int, multiple=True, default=(1000, 12_500), show_default=True)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(sizes: tuple[int, ...], output: str) -> None:
    """Measures and prints."""
    found, rows = conditions(), []
    for size in sizes:
        scenario = large_scenario(size, _WAITING)
        rows.extend(_measure(scenario, size))
    if output == "json":
        click.echo(msgspec.json.encode({"conditions": found, "rows": [asdict(row) for row in rows]}))
        return
    print_conditions(found)
    table = Table("nodes", "pod", "kind", "plan s", "why s", "plans", box=None, pad_edge=False)
    for row in rows:
        table.add_row(str(row.nodes), row.pod, row.kind, f"{row.plan:.2f}", f"{row.seconds:.2f}", f"{row.plans:.1f}")
    console.print(table)


def _measure(scenario: Scenario, size: int) -> list[Row]:
    context, rows = AnswerContext(NOW), []
    plan_scenario(scenario, NOW)  # what is computed once for a cluster
    for pod in TARGETS:
        plan, _ = _timed(lambda: plan_scenario(scenario, NOW))
        query = WhyQuery(f"default/{pod}", fixes=False)
        seconds, answer = _timed(lambda query=query: answer_why(scenario, query, context))
        rows.append(Row(size, pod, answer.kind.value, plan, seconds))
    return rows


def _timed(call: Callable[[], _Found]) -> tuple[float, _Found]:
    started = time.perf_counter()
    found = call()
    return time.perf_counter() - started, found


if __name__ == "__main__":
    main()
