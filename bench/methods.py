"""What decides: each method of a round, when it runs, and what plans lose without it. No cluster is needed.

    python bench/methods.py                          # all families but the openb lists
    python bench/methods.py --openb DATA_DIR         # with them
    python bench/methods.py --only drawn --budget 3 -o json

Each round of each family (harness/families.py) is planned with all methods for a budget in CPU seconds, and then
without each method whose plan was better than the best before it, with as many steps. A win is a round whose plan
leaves more pods, level by level, or costs more by over 0.01 %, without the method. A loss is one that is better so.
Of rounds with 10 to 20,000 pods it is counted which method made the plan that the round ends with.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
from harness.conditions import conditions
from harness.families import families
from harness.plane import say
from harness.tables import console, print_conditions
from harness.worth import Worth, measure
from rich.table import Table

from flowcore.planning.methods.table import METHODS


def print_methods(rows: Sequence[Worth]) -> None:
    """A row for each method over all families."""
    everything = [row for row in rows if not row.method]
    rounds, realistic = sum(row.rounds for row in everything), sum(row.realistic for row in everything)
    table = Table(
        title=f"What decides: {rounds:,} rounds of {len(everything)} families",
        caption=(
            f"made: of {realistic:,} rounds with 10 to 20,000 pods; without the method, most and least of any family: "
            "dearer where as many wait, and more that wait"
        ),
    )
    for name in ("method", "runs"):
        table.add_column(name)
    for name in ("made", "improved", "wins", "losses", "families", "dearer, most", "least", "more wait, most", "least"):
        table.add_column(name, justify="right")
    for method, runs in METHODS.items():
        own = [row for row in rows if row.method == method]
        dearer, more_wait = [row.share for row in own], [row.more_wait for row in own]
        table.add_row(
            method,
            runs,
            f"{sum(row.made for row in own) / realistic:.0%}" if realistic else "",
            f"{sum(row.improved for row in own):,}",
            f"{sum(row.wins for row in own):,}",
            f"{sum(row.losses for row in own):,}",
            f"{sum(row.wins > 0 for row in own)}",
            f"{max(dearer):.3%}" if own else "",
            f"{min(dearer):.3%}" if own else "",
            f"{max(more_wait):,}" if own else "",
            f"{min(more_wait):,}" if own else "",
        )
    console.print(table)


def print_families(rows: Sequence[Worth]) -> None:
    """A row for each family and method that won or lost there."""
    table = Table(title="By family", caption="a row without a method: all methods")
    for name in ("family", "method"):
        table.add_column(name)
    for name in ("rounds", "steps", "improved", "wins", "losses", "placed", "cost", "dearer", "more wait"):
        table.add_column(name, justify="right")
    for row in rows:
        if row.method and not (row.wins or row.losses):
            continue
        against = (f"{row.share:.3%}", f"{row.more_wait:,}") if row.method else ("", "")
        table.add_row(
            row.family,
            row.method,
            f"{row.rounds:,}",
            f"{row.steps:,}",
            f"{row.improved:,}",
            f"{row.wins:,}",
            f"{row.losses:,}",
            f"{row.placed:,}",
            f"{row.cost:,}",
            *against,
        )
    console.print(table)


@click.command()
@click.option(
    "--openb",
    metavar="DATA_DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The production trace; see the README for its files.",
)
@click.option("--only", metavar="TEXT", multiple=True, help="Families named so in part; --dry-run prints names.")
@click.option("--dry-run", is_flag=True, help="Prints the families' names.")
@click.option("--budget", default=1.0, show_default=True, help="CPU seconds of a round with all methods.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(
    openb: Path | None,
    only: tuple[str, ...],
    dry_run: bool,  # noqa: FBT001 - click passes flags so
    budget: float,
    output: str,
) -> None:
    """Measures what plans lose without each method."""
    chosen = [family for family in families(openb) if not only or any(text in family.name for text in only)]
    if dry_run:
        for family in chosen:
            click.echo(family.name)
        return
    gc.set_threshold(100_000, 50, 100)  # as rarely as in the operator's worker
    told, rows = {**conditions(), "budget": f"{budget:g} CPU seconds with all methods, then as many steps"}, []
    for family in chosen:
        say(f"{family.name} ...")
        rows += measure(family, budget)
    if output == "json":
        click.echo(msgspec.json.encode({"conditions": told, "rows": rows}))
    else:
        print_methods(rows)
        print_families(rows)
        print_conditions(told)


if __name__ == "__main__":
    main()
