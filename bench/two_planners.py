"""Two planners on the same recorded rounds, and judges that import neither.

    python bench/two_planners.py --old OLD/.venv/bin/python --new .venv/bin/python
    python bench/two_planners.py --old OLD/.venv/bin/python --new .venv/bin/python --only "small: " -o json

Each planner is the one of the environment of its interpreter, and is asked by `thalweg plan -f DUMP -o json` with its
usual steps. The 400 rounds are kept as Kubernetes objects (harness/recorded/), so that any version reads them. What is
judged: safety (room, ports, taints, selectors, affinity, spread, gangs, limits of queues, PodDisruptionBudgets, who
leaves for whom, nobody in vain), then both plans by what planners were compared by (what waits level by level, victims,
moves, cost), and by the one key: who leaves without a new node waits at its level. The exit code is 1 where a rule is
broken: no plan is unsafe, in no round more pods have no node at the first level that differs, at most 1 % of the rounds
are dearer by over 0.2 % where nothing before the cost differs.
"""

from __future__ import annotations

import sys

import click
import msgspec
from harness.conditions import conditions
from harness.plane import say
from harness.recorded.planners import PlannerProcess
from harness.recorded.rounds import recorded_rounds
from harness.recorded.verdicts import Comparison, counts
from harness.tables import console, print_conditions
from rich.table import Table

_COLUMNS = ("rounds", "better", "equal", "worse", "more wait", "dearer", "by the old key: better", "worse",
            "unsafe, old", "unsafe, new")  # fmt: skip


def print_comparison(comparison: Comparison) -> None:
    """A row for each family, then each round that is worse."""
    table = Table(title="The new planner beside the old one")
    table.add_column("family")
    for name in _COLUMNS:
        table.add_column(name, justify="right")
    for row in counts(comparison):
        numbers = (
            row.rounds, row.better, row.equal, row.worse, row.more_wait, row.dearer, row.better_by_old_key,
            row.worse_by_old_key, row.unsafe_old, row.unsafe_new,
        )  # fmt: skip
        table.add_row(row.family, *map(str, numbers))
    console.print(table)
    for each in comparison.worse:
        worse = [f"worse by {each.why}"] if each.by_new_key < 0 else ["worse by the old key"] * (each.by_old_key < 0)
        unsafe = [f"old: {sentence}" for sentence in each.unsafe_old] + [f"new: {one}" for one in each.unsafe_new]
        console.print(f"{each.name}: {'; '.join((*worse, *unsafe[:4]))}\n    {each.told}", highlight=False)


@click.command()
@click.option("--old", required=True, metavar="PYTHON", help="Interpreter of the planner to compare with.")
@click.option("--new", required=True, metavar="PYTHON", help="Interpreter of the planner that is judged.")
@click.option("--only", metavar="TEXT", multiple=True, help="Rounds named so in part; --dry-run prints names.")
@click.option("--dry-run", is_flag=True, help="Prints the rounds' names.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(
    old: str,
    new: str,
    only: tuple[str, ...],
    dry_run: bool,  # noqa: FBT001 - click passes flags so
    output: str,
) -> None:
    """Compares two planners on recorded rounds."""
    rounds = [each for each in recorded_rounds() if not only or any(text in each.name for text in only)]
    if dry_run:
        for each in rounds:
            click.echo(each.name)
        return
    comparison, family = Comparison(), ""
    with PlannerProcess(old) as first, PlannerProcess(new) as second:
        for each in rounds:
            if each.family != family:
                family = each.family
                say(f"{family} ...")
            comparison.add(each, first.plan(each), second.plan(each))
    broken = comparison.broken_rules()
    if output == "json":
        shown = {"rows": counts(comparison), "worse": comparison.worse, "broken": broken}
        click.echo(msgspec.json.encode({"conditions": conditions(), **shown}))
    else:
        print_comparison(comparison)
        for sentence in broken:
            console.print(sentence, style="bold")
        print_conditions(conditions())
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
