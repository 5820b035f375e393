"""A day of gangs on a cluster with blocks, racks and hosts: who starts how many, and how many racks stay whole.

    python bench/gang_levels.py
    python bench/gang_levels.py --blocks 3 --loads 0.9,1.0,1.15,1.3,1.6 --placers kueue,thalweg

No cluster takes part. A rack has 8 hosts with 8 GPUs, a block 25 racks: 25 blocks are 5,000 nodes. Gangs of 8 to 512
pods with a GPU each come all day and run for two hours in the mean; nobody knows for how long. Of the gangs 30 % need
one rack, most of these all of it, 10 % need one block, the rest may be anywhere. With --slices half of those that need
a block have slices of 8 pods, each in one rack. All rows of a load have the same gangs, drawn from the seed.

All placers decide at the same times. `thalweg`: rounds of the engine over all gangs that wait, with a policy that packs
(model BinPacking); `thalweg without holds`: the same with `holdRoomAfter: 0s`, so no room is held for a gang that has
waited for long; `thalweg default`: with the default policy. `kueue`: Kueue's rule (harness/gang_levels/kueue.py),
gangs in the order of arrival, later ones may pass (BestEffortFIFO); `kueue strict`: none may (StrictFIFO); `kueue small
first`: gangs with fewer pods first, however long larger ones wait. So about as many start as can.
`kube-scheduler`: the rule of kube-scheduler 1.37 with its gates on (harness/gang_levels/kube_scheduler.py), not the
program. `... narrow first`: gangs that need a rack have a higher priority than those that need a block, and these
than all others.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import click
import msgspec
from harness import options
from harness.conditions import conditions
from harness.errors import BenchError
from harness.gang_levels.arrivals import draw
from harness.gang_levels.cluster import Shape
from harness.gang_levels.day import LARGE, Hours, Row, simulate
from harness.gang_levels.kube_scheduler import KubeSchedulerRule
from harness.gang_levels.kueue import kueue
from harness.gang_levels.placers import OneByOne, Placer, narrow_first, small_first
from harness.gang_levels.thalweg import PACKED, WITHOUT_HOLDS, ThalwegRounds
from harness.tables import console, print_conditions
from rich.table import Table

from flowcore.model.policies import BUILT_IN

#: Steps of a round, and the seed of chance in kube-scheduler's rule.
_STEPS, _CHANCE = 3, 1
PLACERS: Mapping[str, Callable[[Shape], Placer]] = {
    "thalweg": lambda shape: ThalwegRounds(shape, PACKED, _STEPS),
    "thalweg without holds": lambda shape: ThalwegRounds(shape, WITHOUT_HOLDS, _STEPS),
    "thalweg narrow first": lambda shape: ThalwegRounds(shape, PACKED, _STEPS, narrow_first=True),
    "thalweg default": lambda shape: ThalwegRounds(shape, BUILT_IN, _STEPS),
    "kueue": lambda _: OneByOne(kueue),
    "kueue narrow first": lambda _: OneByOne(kueue, first=narrow_first),
    "kueue small first": lambda _: OneByOne(kueue, first=small_first),
    "kueue strict": lambda _: OneByOne(kueue, strict=True),
    "kube-scheduler": lambda _: OneByOne(KubeSchedulerRule(_CHANCE)),
    "kube-scheduler narrow first": lambda _: OneByOne(KubeSchedulerRule(_CHANCE), first=narrow_first),
}


@dataclass(frozen=True, slots=True)
class _Case:
    """What a row is of."""

    load: float
    seed: int
    placer: str


def _print(rows: list[tuple[_Case, Row]], title: str, *, slices: bool) -> None:
    table = Table(title=title)
    for column in ("load", "seed", "placer"):
        table.add_column(column)
    columns = ("started", "need a rack", "need a block", "large", "minutes", "rack: minutes", "large: minutes")
    for column in (*columns, "whole racks", "GPUs", "CPU s", *(["whole slices"] if slices else [])):
        table.add_column(column, justify="right")
    for case, row in rows:
        table.add_row(
            f"{case.load:g}",
            f"{case.seed}",
            case.placer,
            f"{row.started:,} of {row.gangs:,}",
            f"{row.rack_started:,} of {row.in_rack:,}",
            f"{row.block_started:,} of {row.in_block:,}",
            f"{row.large_started:,} of {row.large:,}",
            f"{row.median:.0f}, {row.p95:.0f}",
            f"{row.rack_median:.0f}, {row.rack_p95:.0f}",
            f"{row.large_median:.0f}, {row.large_longest:.0f}",
            f"{row.whole_racks:.1f}",
            f"{row.utilisation:.1%}",
            f"{row.seconds:.0f}, {row.longest:.2f}",
            *([f"{row.whole_slices:,} of {row.slices:,}"] if slices else []),
        )
    console.print(table)


_EXPLAINED = {
    "started, of": "whole gangs that started in the day, of those that came in it; some came before it",
    "large": f"of {LARGE} pods and more",
    "minutes": "to the start of gangs that came in the day, median and 95th percentile; of those that did not start: to"
    " the end of the day. Of large gangs: median and the longest time",
    "whole racks": "all of whose GPUs are free, mean over the day",
    "GPUs": "that run, of all, mean over the day",
    "CPU s": "of all decisions, and of the longest",
    "whole slices": "of started gangs with slices, how many of these are in one rack",
}


def _loads(_context: click.Context, _parameter: click.Parameter, text: str) -> list[float]:
    try:
        loads = [float(word) for word in text.split(",")]
    except ValueError:
        loads = []
    if not loads or not all(0 < load <= 10 for load in loads):
        raise click.BadParameter(f'"{text}" is not a list of loads such as 1,1.3')
    return loads


def _seeds(_context: click.Context, _parameter: click.Parameter, text: str) -> list[int]:
    if not all(word.isdecimal() for word in text.split(",")):
        raise click.BadParameter(f'"{text}" is not a list of numbers such as 1,2')
    return [int(word) for word in text.split(",")]


@click.command()
@click.option("--blocks", default=25, show_default=True, type=click.IntRange(min=1), help="Of 200 nodes each.")
@click.option("--loads", default="1,1.3", show_default=True, callback=_loads,
              help="GPU hours that gangs want, of those that there are.")  # fmt: skip
@click.option("--placers", "names", default=",".join(PLACERS), show_default=True,
              callback=options.words(tuple(PLACERS)))  # fmt: skip
@click.option("--slices", is_flag=True, help="Half of the gangs that need a block have slices.")
@click.option("--before", default=4.0, show_default=True, type=click.FloatRange(min=0), help="Hours, not counted.")
@click.option("--hours", "day", default=24.0, show_default=True, type=click.FloatRange(min=0.5), help="Counted.")
@click.option("--every", default=300, show_default=True, type=click.IntRange(min=1), help="Seconds, of decisions.")
@click.option("--seeds", default="1", show_default=True, callback=_seeds, help="A day of gangs for each.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(
    blocks: int,
    loads: list[float],
    names: list[str],
    before: float,
    day: float,
    every: int,
    seeds: list[int],
    output: str,
    *,
    slices: bool,
) -> None:
    """Whole gangs started, time to start, racks left whole and GPUs used, load by load and placer by placer."""
    told, shape = conditions(), Shape(blocks, racks=25, hosts=8, gpus=8)
    hours = Hours(before * 3600, day * 3600, float(every))
    rows: list[tuple[_Case, Row]] = []
    for load, seed in itertools.product(loads, seeds):
        gangs = draw(seed, load, shape.all_gpus, hours.end, slices=slices)
        try:
            rows += [(_Case(load, seed, name), simulate(shape, gangs, PLACERS[name](shape), hours)) for name in names]
        except BenchError as problem:
            click.echo(problem, err=True)
            sys.exit(1)
    if output == "json":
        told_of_all = {"nodes": shape.nodes, "hours": day}
        results = [{**told_of_all, **asdict(case), **asdict(row)} for case, row in rows]
        click.echo(msgspec.json.encode({"conditions": told, "rows": results}))
        return
    title = f"{shape.nodes:,} nodes, {day:g} hours, a decision every {every} s"
    _print(rows, title, slices=slices)
    print_conditions({**_EXPLAINED, **told})


if __name__ == "__main__":
    main()
