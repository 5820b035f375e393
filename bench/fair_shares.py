"""Shares of two and of five tenants that ask for twice what there is, round by round, beside what DRF gives them.

    python bench/fair_shares.py
    python bench/fair_shares.py --rounds 2000 --nodes 40 -o json

No cluster takes part. Each tenant has jobs of one shape; the shapes want cpu and memory in different proportions. The
first tenant has the cluster to itself; the others come one after the other, then all stay. Jobs end after a random
time, and another one of the same tenant comes for each. DRF: Algorithm 1 of Ghodsi et al. (NSDI 2011), job by job on
the sum of all nodes, so it knows no fragments. Each round is planned by `flowcore.planning.round.run_round` and
carried out at once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import click
import msgspec
from harness.conditions import conditions
from harness.shared_cluster import Job, SharedCluster
from harness.tables import console, print_conditions
from rich.table import Table

from flowcore.model.pods import PodClass
from flowcore.model.queues import Queue
from flowcore.model.resources import CPU, MEMORY, PODS

GI = 2**30
#: What is asked for, of what there is.
LOAD = 2.0
#: What a node offers, and what a job of each tenant asks for: cpu (milli), memory (GiB).
NODE = (16_000, 64)
SHAPES = ((1000, 2), (500, 4), (2000, 4), (1000, 8), (500, 1))
#: Seconds between two rounds, and how long a job runs on average.
EVERY, MEAN_RUN = 30.0, 1_800.0
_COLUMNS = (
    "tenants", "tenant", "share", "DRF", "farthest", "one pod", "used", "evictions", "of these late", "ms a round",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One run.

    Attributes:
        shares, ideal: dominant share of each tenant on average over the second half of the rounds, and DRF's.
        farthest: by how much a tenant was off DRF's share in any of these rounds.
        pod: the largest dominant share of one pod.
        evictions: in all, and in the second half.
        used: part of the dearest resource that was used, on average over the second half.
    """

    tenants: int
    rounds: int
    shares: tuple[float, ...]
    ideal: tuple[float, ...]
    farthest: float
    pod: float
    evictions: tuple[int, int]
    used: float
    milliseconds: float


def drf(shapes: Sequence[tuple[int, int]], total: tuple[int, int]) -> list[float]:
    """Dominant shares by Algorithm 1 of the paper, all tenants with more jobs than fit."""
    left, shares, active = list(total), [0.0] * len(shapes), set(range(len(shapes)))
    while active:
        at = min(active, key=lambda each: (shares[each], each))
        if any(more > rest for more, rest in zip(shapes[at], left, strict=True)):
            active.remove(at)
            continue
        left = [rest - more for more, rest in zip(shapes[at], left, strict=True)]
        shares[at] += size(shapes[at], total)
    return shares


def size(amounts: tuple[int, int], total: tuple[int, int]) -> float:
    """The dominant share of cpu (milli) and memory (GiB)."""
    return max(amount / most for amount, most in zip(amounts, total, strict=True))


def run(tenants: int, rounds: int, nodes: int, seed: int) -> Row:
    """One run."""
    draw = random.Random(seed)
    shapes, total = SHAPES[:tenants], (NODE[0] * nodes, NODE[1] * nodes)
    queues = [Queue(f"t{at}") for at in range(tenants)]
    allocatable = ((CPU, NODE[0]), (MEMORY, NODE[1] * GI), (PODS, 110))
    cluster, number = SharedCluster(queues, nodes, allocatable), 0
    ideal = drf(shapes, total)
    wanted = [int(LOAD / tenants / size(shape, total)) for shape in shapes]
    measured: list[list[float]] = []
    late = used = 0.0
    began = time.process_time()
    for turn in range(rounds):
        there = cluster.jobs_by_queue()
        # The tenants come in the first quarter of the rounds.
        for at in range(min(tenants, 1 + turn * 4 * tenants // rounds)):
            for _ in range(wanted[at] - there[queues[at].name]):
                number += 1
                requests = ((CPU, shapes[at][0]), (MEMORY, shapes[at][1] * GI))
                runs = draw.expovariate(1 / MEAN_RUN)
                cluster.submit(Job(f"j{number}", queues[at].name, PodClass(requests=requests), runs))
        result = cluster.round()
        held = [(cluster.used(queue.name), cluster.used(queue.name, MEMORY) // GI) for queue in queues]
        if turn >= rounds // 2:
            measured.append([size(each, total) for each in held])
            late += len(result.evictions)
            used += max(sum(each[r] for each in held) / total[r] for r in range(2))
        cluster.pass_time(EVERY)
    seconds = time.process_time() - began
    return Row(
        tenants,
        rounds,
        tuple(sum(each[at] for each in measured) / len(measured) for at in range(tenants)),
        tuple(ideal),
        max(abs(share - due) for each in measured for share, due in zip(each, ideal, strict=True)),
        max(size(shape, total) for shape in shapes),
        (len(cluster.evictions), int(late)),
        used / len(measured),
        1000 * seconds / rounds,
    )


def print_table(rows: Sequence[Row]) -> None:
    """All rows, a line for each tenant."""
    table = Table(title=f"Tenants that ask for {LOAD:g} times what there is")
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    for row in rows:
        for at, (share, due) in enumerate(zip(row.shares, row.ideal, strict=True)):
            measured = (row.farthest, row.pod, row.used)
            more = (*(f"{each:.1%}" for each in measured), *map(str, row.evictions), f"{row.milliseconds:.1f}")
            table.add_row(
                str(row.tenants), str(at + 1), f"{share:.1%}", f"{due:.1%}", *(("",) * len(more) if at else more)
            )
    console.print(table)


@click.command()
@click.option(
    "--tenants", "counts", type=click.IntRange(1, len(SHAPES)), multiple=True, default=(2, 5), show_default=True
)
@click.option("--rounds", default=400, show_default=True)
@click.option("--nodes", default=20, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(counts: tuple[int, ...], rounds: int, nodes: int, seed: int, output: str) -> None:
    """Shares over time beside DRF's."""
    told, rows = conditions(), [run(count, rounds, nodes, seed) for count in counts]
    if output == "json":
        click.echo(msgspec.json.encode({"conditions": told, "rows": [asdict(row) for row in rows]}))
    else:
        print_table(rows)
        print_conditions(told)


if __name__ == "__main__":
    main()
