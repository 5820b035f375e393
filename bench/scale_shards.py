"""What it costs to divide the nodes of one cluster among several leaders.

    python bench/scale_shards.py
    python bench/scale_shards.py --nodes 100 --pods 800       # does it work?

Each leader has every so-many-th node and some of the classes of pods, drawn at random as policies would divide them,
and plans by itself. Then room that is left is lent: pods that found none go to the leader with the most room. Columns:
pods left without a node by one leader, by the shards, and after lending; CPU seconds of one leader's round and of the
slowest shard's. Pods have no rules between each other.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import click
from harness.conditions import conditions
from harness.instances import Size, make
from harness.parts import Part
from harness.tables import console, print_conditions
from rich.table import Table

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.model.pods import PodClass
from flowcore.model.resources import CPU


def _divide(pods: Sequence[PendingPod], shards: int, draw: random.Random) -> list[list[PendingPod]]:
    owner: dict[PodClass, int] = {}
    found: list[list[PendingPod]] = [[] for _ in range(shards)]
    for pod in pods:
        found[owner.setdefault(pod.pod_class, draw.randrange(shards))].append(pod)
    return found


def _lend(parts: Sequence[Part], left: Sequence[PendingPod]) -> list[PendingPod]:
    """Pods that are left go to each part in turn, the one with the most free CPU first."""
    rest = list(left)
    for part in sorted(parts, key=_free, reverse=True):
        rest, _ = part.plan(rest)
    return rest


def _free(part: Part) -> int:
    snapshot = part.snapshot()
    column = snapshot.resources.index(CPU)
    return int((snapshot.allocatable - snapshot.used)[:, column].sum())


@click.command()
@click.option("--nodes", default=600, show_default=True, type=click.IntRange(min=16))
@click.option("--pods", default=6_000, show_default=True, type=click.IntRange(min=1))
@click.option("--classes", default=100, show_default=True, type=click.IntRange(min=1))
@click.option("--seeds", default=3, show_default=True, type=click.IntRange(min=1))
def main(nodes: int, pods: int, classes: int, seeds: int) -> None:
    """Prints a table of loads and numbers of shards; sums over the seeds."""
    told = conditions()
    table = Table(title=f"{nodes} nodes, {pods:,} pods of {classes} classes, sum of {seeds} clusters")
    for name in ("load", "shards", "left", "left after lending", "slowest CPU s"):
        table.add_column(name, justify="right")
    for load in (0.7, 0.9, 1.0):
        for shards in (1, 2, 4, 8):
            left = lent = 0
            slowest = 0.0
            for seed in range(seeds):
                instance = make(Size(nodes, pods, classes, load=load, seed=seed, spread=False))
                draw = random.Random(seed)
                parts = [Part(instance.snapshot.table.nodes[at::shards]) for at in range(shards)]
                rest: list[PendingPod] = []
                for part, mine in zip(parts, _divide(instance.snapshot.pending, shards, draw), strict=True):
                    unplaced, seconds = part.plan(mine)
                    rest += unplaced
                    slowest = max(slowest, seconds)
                left += len(rest)
                lent += len(_lend(parts, rest)) if shards > 1 else len(rest)
            table.add_row(str(load), str(shards), f"{left:,}", f"{lent:,}", f"{slowest:.2f}")
    console.print(table)
    print_conditions(told)


if __name__ == "__main__":
    main()
