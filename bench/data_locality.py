"""Data that crosses racks and zones, and time until pods end: DataLocality beside CPUMemory and one by one.

    python bench/data_locality.py
    python bench/data_locality.py --racks 16 --seeds 1,2,3 -o json

No cluster takes part. Jobs arrive over simulated time; each pod reads one block, which has three replicas: two in one
rack, one in another (as HDFS places them). Its node copies the block before the pod runs: the truth of a plan is what
that moves and how long it takes, by the speeds below, which no cost model is asked for.

- "waiting" has ``waitForCheaperNode``: a pod waits for a node near its block while that is cheaper than copying.
- "one by one" is the same costs without flows and search: each pod takes its cheapest node in turn, as it arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
from flowcore.model.cost_policy import CostPolicy, DataLocality, UnscheduledPrice
from flowcore.model.data import DataPlace, DataSource, Level
from flowcore.model.nodes import Node
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.resources import CPU, MEMORY, PODS
from flowcore.planning.round import RoundResult, run_one_by_one, run_round

GI = 2**30
NODES_PER_RACK, RACKS_PER_ZONE, SLOTS = 8, 4, 4
RACK, ZONE = "rack", "zone"
#: Seconds to copy a GiB from another node of the rack, another rack of the zone, another zone.
SECONDS_PER_GIB = (0.8, 3.2, 8.0)
#: A second of copying costs this much, and so does a second of waiting of a pod.
PER_SECOND = 100
#: Seconds between rounds, of arrivals, and that a pod runs.
STEP, ARRIVALS, RUNS = 5, 600, (60, 180)
#: Sizes of blocks in GiB.
BLOCKS = (8, 64)
#: Share of the slots that is in use if nothing is copied.
LOAD = 0.75


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod that comes at a time, runs for some seconds and reads a block of so many GiB from these nodes."""

    at: int
    seconds: int
    gib: int
    replicas: tuple[int, ...]


@dataclass(slots=True)
class Truth:
    """What one method made of one instance: GiB that crossed each border, and seconds of each pod."""

    over: np.ndarray = field(default_factory=lambda: np.zeros(3))
    waited: list[float] = field(default_factory=list)
    copied: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Row:
    """Means over the seeds: GiB over each border, and seconds of a pod."""

    method: str
    over_nodes: float
    over_racks: float
    over_zones: float
    waited: float
    copied: float
    until_run: float
    p99_until_run: float


def draw(racks: int, random: np.random.Generator) -> list[Arrival]:
    """Jobs of some pods with blocks of one size, as many as the load says."""
    nodes = racks * NODES_PER_RACK
    wanted = LOAD * nodes * SLOTS * ARRIVALS / float(np.mean(RUNS))
    found: list[Arrival] = []
    while len(found) < wanted:
        at, gib = int(random.integers(0, ARRIVALS)), int(random.integers(*BLOCKS))
        for _ in range(int(random.integers(1, 3 * SLOTS))):
            near, far = random.choice(racks, size=2, replace=False) * NODES_PER_RACK
            first, second = random.choice(NODES_PER_RACK, size=2, replace=False)
            replicas = near + first, near + second, far + random.integers(NODES_PER_RACK)
            found.append(Arrival(at, int(random.integers(*RUNS)), gib, tuple(int(each) for each in replicas)))
    return sorted(found, key=lambda each: each.at)


def cluster(racks: int) -> NodeTable:
    """Racks of nodes with slots, in zones."""
    amounts = tuple(sorted(((CPU, SLOTS * 1000), (MEMORY, SLOTS * 4 * GI), (PODS, 110))))
    return NodeTable.of(
        Node(
            f"n{at:04}",
            labels=((RACK, f"r{at // NODES_PER_RACK}"), (ZONE, f"z{at // NODES_PER_RACK // RACKS_PER_ZONE}")),
            allocatable=amounts,
        )
        for at in range(racks * NODES_PER_RACK)
    )


def borders(node: int, replica: int) -> int:
    """How many borders are between two nodes: 0 on the node itself, 3 to another zone."""
    rack, other = node // NODES_PER_RACK, replica // NODES_PER_RACK
    if node == replica:
        return 0
    if rack == other:
        return 1
    return 2 if rack // RACKS_PER_ZONE == other // RACKS_PER_ZONE else 3


def simulate(racks: int, arrivals: Sequence[Arrival], plan: Callable[[Snapshot], RoundResult]) -> Truth:
    """Rounds until all pods have begun."""
    table, truth = cluster(racks), Truth()
    requests = ((CPU, 1000), (MEMORY, 4 * GI))
    busy: list[tuple[float, str]] = []
    waiting: dict[str, Arrival] = {}
    now, coming = 0, 0
    while waiting or coming < len(arrivals):
        now += STEP
        busy = [each for each in busy if each[0] > now]
        while coming < len(arrivals) and arrivals[coming].at <= now:
            waiting[f"default/p{coming}"] = arrivals[coming]
            coming += 1
        pending = tuple(
            PendingPod(key, key, PodClass(requests, data=(_data(each),)), BUILT_IN.name, float(each.at) or 1.0)
            for key, each in waiting.items()
        )
        running = [(node, requests, ()) for _, node in busy]
        result = plan(build_snapshot(generation=1, now=float(now), table=table, running=running, pending=pending))
        for placement in result.placements:
            arrival, node = waiting.pop(placement.pod.key), table.index[placement.node]
            crossed = min(borders(node, replica) for replica in arrival.replicas)
            copies = arrival.gib * SECONDS_PER_GIB[crossed - 1] if crossed else 0.0
            truth.over[:crossed] += arrival.gib
            truth.waited.append(now - arrival.at)
            truth.copied.append(copies)
            busy.append((now + copies + arrival.seconds, placement.node))
    return truth


def _data(arrival: Arrival) -> DataSource:
    return DataSource(tuple(DataPlace(Level.NODE, f"n{at:04}") for at in arrival.replicas), arrival.gib * GI)


def methods() -> dict[str, Callable[[Snapshot], RoundResult]]:
    """Ways to plan a round."""
    steps = np.diff([0.0, *SECONDS_PER_GIB]) * PER_SECOND
    node, rack, zone = (round(each) for each in steps)
    near = CostPolicy(data_locality=DataLocality(node, rack, zone, rack_label=RACK, zone_label=ZONE))
    # Prices count tenths of a mean node: a pod of a quarter of a node has the size 2.5.
    waits = UnscheduledPrice(base=3000, per_waiting_second=round(PER_SECOND / (10 / SLOTS)), wait_for_cheaper_node=True)

    def policies(cost: CostPolicy, price: UnscheduledPrice = BUILT_IN.unscheduled) -> dict[str, Policy]:
        return {BUILT_IN.name: Policy(BUILT_IN.name, cost=cost, unscheduled=price)}

    return {
        "DataLocality, waiting": partial(run_round, policies=policies(near, waits)),
        "DataLocality": partial(run_round, policies=policies(near)),
        "DataLocality one by one": partial(run_one_by_one, policies=policies(near)),
        "CPUMemory": partial(run_round, policies=policies(CostPolicy())),
        "CPUMemory one by one": partial(run_one_by_one, policies=policies(CostPolicy())),
    }


def to_row(method: str, truths: Sequence[Truth]) -> Row:
    """Means over instances."""
    waited, copied = (np.concatenate(each) for each in zip(*((t.waited, t.copied) for t in truths), strict=True))
    over = np.mean([truth.over for truth in truths], axis=0)
    total = waited + copied
    return Row(
        method,
        *(float(each) for each in over),
        float(waited.mean()),
        float(copied.mean()),
        float(total.mean()),
        float(np.percentile(total, 99)),
    )


@click.command()
@click.option("--racks", type=click.IntRange(2), default=8, show_default=True, help="Racks of 8 nodes.")
@click.option("--seeds", callback=numbers, default="1,2", show_default=True, help="Instances to take the mean of.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(racks: int, seeds: list[int], output: str) -> None:
    """Measures what data locality and waiting save."""
    instances = [draw(racks, np.random.default_rng(seed)) for seed in seeds]
    rows = [
        to_row(name, [simulate(racks, arrivals, plan) for arrivals in instances]) for name, plan in methods().items()
    ]
    if output == "json":
        click.echo(msgspec.json.encode({"conditions": conditions(), "rows": rows}))
        return
    pods = sum(map(len, instances)) // len(instances)
    columns = ("GiB over nodes", "over racks", "over zones", "s waited", "s copied", "s until run", "p99")
    table = Table("method", *columns, title=f"{racks * NODES_PER_RACK} nodes, {pods:,} pods, seeds {seeds}")
    for row in rows:
        table.add_row(row.method, *(f"{each:,.1f}" for each in _values(row)))
    console.print(table)
    print_conditions(conditions())


def _values(row: Row) -> tuple[float, ...]:
    return (row.over_nodes, row.over_racks, row.over_zones, row.waited, row.copied, row.until_run, row.p99_until_run)


if __name__ == "__main__":
    main()
