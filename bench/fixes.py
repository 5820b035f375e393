"""How long the search for fixes takes beside one plan of the same cluster, and how often it finds the cheapest change.

    python bench/fixes.py
    python bench/fixes.py --nodes 1000 --clusters 50 -o json

No cluster takes part. The scenarios are those of ``bench/why.py``: 12 running pods on a node, 1,000 that wait. For one
pod of each kind of reason, and for a gang of 100: CPU seconds of the search, which ends with its fixes or its budget of
plans. Then small clusters are drawn (harness/small_fixes.py), and every single change of each is planned: for how many
of their waiting pods no change is cheaper than the first fix.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, dataclass

import click
import msgspec
from harness import small_fixes
from harness.conditions import conditions
from harness.scenarios import NOW, large_scenario
from harness.small_fixes import cheapest, draw_scenario
from harness.tables import console, print_conditions
from rich.table import Table

from flowcore.questions.diagnosis.fixes import find_fixes
from flowcore.questions.diagnosis.fixes.ranking import rank
from flowcore.questions.diagnosis.fixes.replanning import Replanning
from flowcore.questions.scenario import Scenario, ScenarioPlan, plan_scenario
from flowcore.questions.scenario.context import AnswerContext

_TARGETS = ("large-", "picky-", "alone-", "rival-", "gang-", "part-")
_WAITING = 1000


@dataclass(frozen=True, slots=True)
class Row:
    """One search.

    Attributes:
        pods: how many it is for.
        plan: CPU seconds of one plan of the scenario, right before.
        seconds: CPU seconds of the search.
        fixes: how many it found; ``first``: the first in words.
    """

    nodes: int
    target: str
    pods: int
    plan: float
    seconds: float
    fixes: int
    first: str

    @property
    def plans(self) -> float:
        """The time of the search in plans."""
        return self.seconds / self.plan


@click.command()
@click.option("--nodes", "sizes", type=int, multiple=True, default=(1000, 12_500), show_default=True)
@click.option("--clusters", type=int, default=200, show_default=True, help="Small clusters that are drawn.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(sizes: tuple[int, ...], clusters: int, output: str) -> None:
    """Measures and prints."""
    found = conditions()
    rows = [row for size in sizes for row in _measure(large_scenario(size, _WAITING), size)]
    share = _share(clusters)
    if output == "json":
        click.echo(msgspec.json.encode({"conditions": found, "rows": [asdict(row) for row in rows], "share": share}))
        return
    print_conditions(found)
    table = Table(
        "nodes", "target", "pods", "plan CPU s", "fixes CPU s", "plans", "fixes", "first", box=None, pad_edge=False
    )
    for row in rows:
        table.add_row(
            str(row.nodes), row.target, str(row.pods), f"{row.plan:.2f}", f"{row.seconds:.2f}", f"{row.plans:.1f}",
            str(row.fixes), row.first,
        )  # fmt: skip
    console.print(table)
    console.print(
        f"{share['pods']} waiting pods of {clusters} small clusters that a single change would place: no change is "
        f"cheaper than the first fix for {share['cheapest']}, another fix was found for {share['dearer']}, none for "
        f"{share['none']}"
    )


def _measure(scenario: Scenario, size: int) -> list[Row]:
    context, rows = AnswerContext(NOW), []
    plan = plan_scenario(scenario, NOW)  # also what is computed once for a cluster
    unplaced = [each.pod.key for each in plan.result.unplaced]
    for target in _TARGETS:
        keys = [key for key in unplaced if key.startswith(f"default/{target}")]
        if not keys:
            continue
        started = time.process_time()
        plan = plan_scenario(scenario, NOW)
        planned = time.process_time()
        fixes = find_fixes(scenario, plan, keys if target == "gang-" else keys[:1], context)
        seconds = time.process_time() - planned
        first = fixes[0].text if fixes else "none"
        pods = len(keys) if target == "gang-" else 1
        rows.append(Row(size, keys[0], pods, planned - started, seconds, len(fixes), first))
    return rows


def _share(clusters: int) -> Counter[str]:
    counts: Counter[str] = Counter(pods=0, cheapest=0, dearer=0, none=0)
    for seed in range(clusters):
        scenario = draw_scenario(seed)
        plan = plan_scenario(scenario, small_fixes.NOW)
        for unplaced in plan.result.unplaced:
            verdict = _verdict(scenario, plan, unplaced.pod.key)
            if verdict:
                counts.update(("pods", verdict))
    return counts


def _verdict(scenario: Scenario, plan: ScenarioPlan, key: str) -> str:
    """What the search finds for a pod beside the cheapest single change; "": no single change places the pod."""
    context, pod = AnswerContext(small_fixes.NOW), scenario.cluster.waiting[key]
    truth = cheapest(scenario, plan, pod)
    if truth is None:
        return ""
    fixes = find_fixes(scenario, plan, [key], context)
    if not fixes:
        return "none"
    changes = fixes[0].change
    outcome = Replanning(scenario, plan, context, 1).outcome(changes)
    assert outcome is not None
    return "cheapest" if rank(scenario, [pod], changes, outcome) <= truth[0] else "dearer"


if __name__ == "__main__":
    main()
