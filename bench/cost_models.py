"""Each built-in cost model on an instance made for it: what it is to improve, beside CPUMemory and one by one.

    python bench/cost_models.py
    python bench/cost_models.py --nodes 200 --seeds 1,2,3 -o json

No cluster takes part. The truth is computed from the plan and the instance alone; no cost model is asked for it.

- LoadSpreading: pods of very different sizes. Truth: pods on the node that has most, less pods on the node that has
  fewest.
- BinPacking: small pods on nodes that are half empty. Truth: nodes that stay without a pod, and whole-node pods that
  still fit.
- NetworkAware: transfers of 500 Mbit/s on nodes whose network is used, unevenly, by traffic that nobody asked for.
  A transfer gets its part of the network if the network is overloaded. Truth: the 99th percentile of how many times
  longer a transfer takes than alone.

"one by one" is the model itself without flows and search: each pod takes its cheapest node in turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import click
import msgspec
import numpy as np
from harness.conditions import conditions
from harness.options import numbers
from harness.tables import console, print_conditions
from rich.table import Table

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.nodes import Node, Report
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.resources import BANDWIDTH, CPU, MEMORY, PODS
from flowcore.planning.round import RoundResult, run_one_by_one, run_round

GI, MBIT = 2**30, 10**6
#: What a node offers: cpu (milli), memory, bits per second, pods.
CORES, BYTES, NETWORK, MOST_PODS = 32_000, 128 * GI, 10_000 * MBIT, 110
TRANSFER = 500 * MBIT


@dataclass(frozen=True, slots=True)
class Row:
    """What one method made of one instance.

    Attributes:
        truth: what the model is to improve, in words.
        value: that, in a mean over the seeds; smaller is better if ``smaller_is_better``.
    """

    model: str
    truth: str
    method: str
    value: float
    placed: int
    pods: int
    smaller_is_better: bool


@dataclass(frozen=True, slots=True)
class Case:
    """An instance for a model: how it is drawn, and its truths by name with whether less is better."""

    model: str
    draw: Callable[[int, np.random.Generator], Snapshot]
    truths: tuple[tuple[str, Callable[[Snapshot, RoundResult], float], bool], ...]


def nodes(count: int) -> list[Node]:
    """Equal nodes."""
    amounts = ((CPU, CORES), (MEMORY, BYTES), (BANDWIDTH, NETWORK), (PODS, MOST_PODS))
    return [Node(f"n{at:04}", allocatable=tuple(sorted(amounts))) for at in range(count)]


def waiting(sizes: list[tuple[tuple[str, int], ...]]) -> tuple[PendingPod, ...]:
    """A pod of each size."""
    return tuple(
        PendingPod(f"bench/p{at}", f"p{at}", PodClass(requests=requests), BUILT_IN.name, created=float(at))
        for at, requests in enumerate(sizes)
    )


def snapshot(table: list[Node], pending: tuple[PendingPod, ...]) -> Snapshot:
    """The nodes without running pods."""
    return build_snapshot(generation=1, now=1_000.0, table=NodeTable.of(table), running=[], pending=pending)


def draw_sizes(count: int, random: np.random.Generator) -> Snapshot:
    """Twelve pods for each node, of 0.1 to 6 cores: all fit."""
    cores = random.choice([100, 250, 500, 2_000, 6_000], count * 12, p=[0.3, 0.3, 0.2, 0.15, 0.05])
    return snapshot(nodes(count), waiting([((CPU, int(each)), (MEMORY, 2 * GI)) for each in cores]))


def draw_small(count: int, random: np.random.Generator) -> Snapshot:
    """Pods of 1 to 4 cores that together need a third of the nodes."""
    cores = random.choice([1_000, 2_000, 4_000], count * 5)
    return snapshot(nodes(count), waiting([((CPU, int(each)), (MEMORY, int(each) * 4 * GI // 1000)) for each in cores]))


def draw_transfers(count: int, random: np.random.Generator) -> Snapshot:
    """Ten transfers for each node; measured traffic of 0 to 9 Gbit/s on each, most of it little."""
    traffic = NETWORK * random.beta(0.7, 1.4, count) * 0.9
    table = [
        msgspec.structs.replace(node, report=Report(bandwidth=int(used)))
        for node, used in zip(nodes(count), traffic, strict=True)
    ]
    cores = random.choice([500, 1_000, 2_000], count * 10)
    sizes = [tuple(sorted(((CPU, int(each)), (MEMORY, GI), (BANDWIDTH, TRANSFER)))) for each in cores]
    return snapshot(table, waiting(sizes))


def pods_by_node(found: RoundResult) -> Counter[str]:
    """How many pods the plan puts on each node."""
    return Counter(placement.node for placement in found.placements)


def unevenness(cluster: Snapshot, found: RoundResult) -> float:
    """Pods on the node with most, less those on the node with fewest."""
    counts = pods_by_node(found)
    every = [counts[node.name] for node in cluster.table.nodes]
    return max(every) - min(every)


def empty_nodes(cluster: Snapshot, found: RoundResult) -> float:
    """Nodes without a pod."""
    return len(cluster.table.nodes) - len(pods_by_node(found))


def whole_nodes(_cluster: Snapshot, found: RoundResult) -> float:
    """Pods of 30 cores that fit beside the plan."""
    cpu = found.after.resources.index(CPU)
    return float((found.after.free[:, cpu] >= CORES - 2_000).sum())


def transfer_times(cluster: Snapshot, found: RoundResult) -> float:
    """The 99th percentile of a transfer's time, 1 for the time that it takes alone."""
    counts, index = pods_by_node(found), cluster.table.index
    others = cluster.reports.bandwidth(index)
    times = [
        max(1.0, (others[index[node]] + count * TRANSFER) / NETWORK)
        for node, count in counts.items()
        for _ in range(count)
    ]
    return float(np.percentile(times, 99))


CASES = (
    Case("LoadSpreading", draw_sizes, (("most less fewest pods on a node", unevenness, True),)),
    Case(
        "BinPacking",
        draw_small,
        (("nodes without a pod", empty_nodes, False), ("30-core pods that still fit", whole_nodes, False)),
    ),
    Case("NetworkAware", draw_transfers, (("p99 of a transfer's time", transfer_times, True),)),
)


def run(case: Case, count: int, seeds: list[int]) -> list[Row]:
    """The model, CPUMemory, and the model one by one, on the same instances."""

    def policies(model: str) -> dict[str, Policy]:
        return {BUILT_IN.name: Policy(BUILT_IN.name, cost=CostPolicy(model))}

    methods: dict[str, Callable[[Snapshot], RoundResult]] = {
        case.model: partial(run_round, policies=policies(case.model)),
        "CPUMemory": partial(run_round, policies=policies("CPUMemory")),
        f"{case.model} one by one": partial(run_one_by_one, policies=policies(case.model)),
        "CPUMemory one by one": partial(run_one_by_one, policies=policies("CPUMemory")),
    }
    clusters = [case.draw(count, np.random.default_rng(seed)) for seed in seeds]
    rows: list[Row] = []
    for name, method in methods.items():
        results = [method(cluster) for cluster in clusters]
        for truth, value, smaller in case.truths:
            mean = float(np.mean([value(*each) for each in zip(clusters, results, strict=True)]))
            placed, pods = sum(len(each.placements) for each in results), sum(len(each.pending) for each in clusters)
            rows.append(Row(case.model, truth, name, mean, placed, pods, smaller))
    return rows


@click.command()
@click.option("--nodes", "count", type=click.IntRange(2), default=100, show_default=True, help="Nodes of an instance.")
@click.option("--seeds", callback=numbers, default="1,2,3", show_default=True, help="Instances to take the mean of.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(count: int, seeds: list[int], output: str) -> None:
    """Measures what each built-in model is for."""
    rows = [row for case in CASES for row in run(case, count, seeds)]
    if output == "json":
        click.echo(msgspec.json.encode({"conditions": conditions(), "rows": rows}))
        return
    table = Table("instance for", "truth", "method", "value", "placed", title=f"{count} nodes, seeds {seeds}")
    for row in rows:
        better = "less is better" if row.smaller_is_better else "more is better"
        table.add_row(
            row.model, f"{row.truth} ({better})", row.method, f"{row.value:.2f}", f"{row.placed:,} of {row.pods:,}"
        )
    console.print(table)
    print_conditions(conditions())


if __name__ == "__main__":
    main()
