"""How often plans of small drawn rounds are not the best that there are: every plan of each round is tried.

    python bench/small_rounds.py
    python bench/small_rounds.py --draws 200 --only urgent -o json

`placed`: up to 4 nodes and 12 waiting pods of one priority, with one kind of rule: rounds in which some plan places
more pods. `urgent`: full clusters of 2 to 4 nodes and 2 to 4 urgent pods, with PodDisruptionBudgets: rounds in which
some plan places more pods, or evicts pods that are less important or fewer by kube-scheduler's order of victims.
`moved`: clusters of 2 to 4 nodes whose running pods may move for one or two waiting ones, and be preempted where these
are urgent: rounds in which some plan places more pods, evicts less by that order, or moves fewer pods. In each of these
plans a moved pod has room before any pod leaves. No cluster takes part.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import click
import msgspec
from harness import move_rounds
from harness.conditions import conditions
from harness.drawn_pods import NOW
from harness.small_rounds import RULES, Shape, draw_round, most_placed
from harness.tables import console, print_conditions
from harness.urgent_rounds import UrgentShape, best_standing, draw_urgent, standing_of
from rich.table import Table

from flowcore.questions.scenario import plan_scenario

PARTS = ("placed", "urgent", "moved")
#: Whether pods that wait are urgent.
MOVED = {"moves": False, "moves and victims": True}
URGENT = {
    "one priority, resources": UrgentShape((1000,), rules=False),
    "one priority": UrgentShape((1000,)),
    "two priorities": UrgentShape((1000, 30)),
}


@dataclass(frozen=True, slots=True)
class Row:
    """Draws of one kind.

    Attributes:
        worse: draws in which some plan is better than ours.
        fewer: of these, draws in which it has as many pods and fewer victims (urgent), or less important ones (moved).
        moves: of these, draws in which it only moves fewer pods (moved).
        evicting: draws in which the best plan evicts or moves (urgent, moved).
        seconds: CPU seconds of one round, the mean.
    """

    part: str
    case: str
    draws: int
    worse: int
    fewer: int | None
    moves: int | None
    evicting: int | None
    seconds: float

    @property
    def share(self) -> float:
        """Of the draws with a better plan."""
        return self.worse / self.draws


def placed(rules: str, draws: int, seed: int) -> Row:
    """Rounds of one priority with a kind of rule."""
    worse, seconds = 0, 0.0
    for number in range(draws):
        scenario = draw_round(seed + number, Shape(rules, priorities=(0,)))
        before = time.process_time()
        result = plan_scenario(scenario, NOW).result
        seconds += time.process_time() - before
        worse += (len(result.placements),) < most_placed(scenario)
    return Row("placed", rules, draws, worse, None, None, None, seconds / draws)


def urgent(case: str, draws: int, seed: int) -> Row:
    """Rounds in which urgent pods need others to leave."""
    worse = fewer = evicting = 0
    seconds = 0.0
    for number in range(draws):
        drawn = draw_urgent(seed + number, URGENT[case])
        before = time.process_time()
        result = plan_scenario(drawn.scenario, NOW).result
        seconds += time.process_time() - before
        ours, best = standing_of(drawn, result), best_standing(drawn)
        worse += best < ours
        fewer += best < ours and best[::3] == ours[::3] and sum(best[2::3]) < sum(ours[2::3]) - 2**30
        evicting += any(best[2::3])
    return Row("urgent", case, draws, worse, fewer, None, evicting, seconds / draws)


def moved(case: str, draws: int, seed: int) -> Row:
    """Rounds in which pods move for waiting ones, or leave too."""
    worse = fewer = moves = leaving = 0
    seconds = 0.0
    for number in range(draws):
        drawn = move_rounds.draw_moves(seed + number, urgent=MOVED[case])
        scenario = drawn.scenario()
        before = time.process_time()
        result = plan_scenario(scenario, NOW, reschedule=True).result
        seconds += time.process_time() - before
        best, ours = move_rounds.best_standing(drawn), move_rounds.standing_of(drawn, result)
        worse += best < ours
        fewer += best < ours and best[0] == ours[0] and best[:3] < ours[:3]
        moves += best < ours and best[:3] == ours[:3]
        leaving += best[2] > 0 or best[3] > 0
    return Row("moved", case, draws, worse, fewer, moves, leaving, seconds / draws)


def rows(parts: tuple[str, ...], draws: int, seed: int) -> Iterator[Row]:
    """All rows of some parts."""
    ways: dict[str, tuple[Callable[[str, int, int], Row], tuple[str, ...]]] = {
        "placed": (placed, RULES),
        "urgent": (urgent, tuple(URGENT)),
        "moved": (moved, tuple(MOVED)),
    }
    for part in parts:
        measure, cases = ways[part]
        yield from (measure(case, draws, seed) for case in cases)


@click.command()
@click.option("--only", type=click.Choice(PARTS), help="One part.")
@click.option("--draws", default=1_000, show_default=True, type=click.IntRange(min=1), help="Rounds of a row.")
@click.option("--seed", default=1, show_default=True, help="Of the first draw; the others follow.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(only: str | None, draws: int, seed: int, output: str) -> None:
    """Small rounds beside every plan."""
    measured = list(rows(PARTS if only is None else (only,), draws, seed))
    if output == "json":
        shown = [{**asdict(row), "share": row.share} for row in measured]
        click.echo(msgspec.json.encode({"conditions": conditions(), "rows": shown}))
        return
    table = Table(title="Small rounds beside every plan")
    columns = ("part", "case", "draws", "a better plan", "share", "fewer victims", "fewer moves", "leaving", "CPU s")
    for column in columns:
        table.add_column(column, justify="left" if column in ("part", "case") else "right")
    for row in measured:
        counts = ("" if count is None else str(count) for count in (row.fewer, row.moves, row.evicting))
        table.add_row(
            row.part, row.case, str(row.draws), str(row.worse), f"{row.share:.2%}", *counts, f"{row.seconds:.4f}"
        )
    console.print(table)
    print_conditions(conditions())


if __name__ == "__main__":
    main()
