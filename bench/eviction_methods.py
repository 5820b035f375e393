"""What decides who leaves: each method of evictions, and what plans lose without it. No cluster is needed.

    python bench/eviction_methods.py
    python bench/eviction_methods.py --only small --draws 500 -o json

Each round of each family (harness/eviction_families.py) is planned with all methods and then without each of them. A
win is a round whose plan is worse without the method: more pods wait, level by level, or the victims are more important
or more by kube-scheduler's order, or more pods move. A loss is one that is better so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click
import msgspec
from harness.conditions import conditions
from harness.eviction_families import families
from harness.eviction_worth import METHODS, EvictionWorth, measure
from harness.plane import say
from harness.tables import console, print_conditions
from rich.table import Table


def print_methods(rows: Sequence[EvictionWorth]) -> None:
    """A row for each method over all families."""
    table = Table(title="What decides who leaves", caption="share of wins: of the family in which it is largest")
    table.add_column("without")
    for name in ("rounds", "asked", "wins", "losses", "share of wins, most", "family"):
        table.add_column(name, justify="left" if name == "family" else "right")
    for method in ("", *METHODS):
        own = [row for row in rows if row.method == method]
        if not own:
            continue
        most = max(own, key=lambda row: row.wins / row.rounds)
        table.add_row(
            method,
            f"{sum(row.rounds for row in own):,}",
            f"{sum(row.asked for row in own):,}" if method else "",
            f"{sum(row.wins for row in own):,}",
            f"{sum(row.losses for row in own):,}",
            f"{most.wins / most.rounds:.1%}" if most.wins else "",
            most.family if most.wins else "",
        )
    console.print(table)


def print_families(rows: Sequence[EvictionWorth]) -> None:
    """A row for each family and method that won or lost there."""
    table = Table(title="By family", caption="a row without a method: all methods")
    for name in ("family", "without"):
        table.add_column(name)
    for name in (
        "rounds",
        "asked",
        "wins",
        "losses",
        "placed",
        "victims",
        "by priority",
        "moves",
        "cost",
        "CPU s a round",
    ):
        table.add_column(name, justify="right")
    for row in rows:
        if row.method and not (row.wins or row.losses):
            continue
        table.add_row(
            row.family,
            row.method,
            f"{row.rounds:,}",
            *((f"{row.asked:,}", f"{row.wins:,}", f"{row.losses:,}") if row.method else ("", "", "")),
            f"{row.placed:,}",
            f"{sum(row.victims.values()):,}",
            _by_priority(row.victims),
            f"{row.moves:,}",
            f"{row.cost:,}",
            f"{row.seconds / row.rounds:.4f}",
        )
    console.print(table)


def _by_priority(victims: Mapping[int, int]) -> str:
    return ", ".join(f"{priority}: {count:,}" for priority, count in sorted(victims.items(), reverse=True))


@click.command()
@click.option("--only", metavar="TEXT", multiple=True, help="Families named so in part; --dry-run prints names.")
@click.option("--dry-run", is_flag=True, help="Prints the families' names.")
@click.option("--draws", default=300, show_default=True, type=click.IntRange(min=1), help="Most rounds of a family.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(
    only: tuple[str, ...],
    dry_run: bool,  # noqa: FBT001 - click passes flags so
    draws: int,
    output: str,
) -> None:
    """Measures what plans lose without each method of evictions."""
    chosen = [family for family in families() if not only or any(text in family.name for text in only)]
    if dry_run:
        for family in chosen:
            click.echo(family.name)
        return
    rows: list[EvictionWorth] = []
    for family in chosen:
        say(f"{family.name} ...")
        rows += measure(family, draws)
    if output == "json":
        click.echo(msgspec.json.encode({"conditions": conditions(), "rows": rows}))
    else:
        print_methods(rows)
        print_families(rows)
        print_conditions(conditions())


if __name__ == "__main__":
    main()
