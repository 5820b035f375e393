"""What running pods cost a round, and how few of them move.

    python bench/running_pods.py
    python bench/running_pods.py --only gang --nodes 40 -o json

No cluster takes part. `cpu`: 5,000 nodes with 50,000 running pods, of which 20,000 may be moved, and 500 waiting pods:
all of them fit, or 100 of them fit only if somebody leaves; with and without the running pods in the snapshot. `gang`:
nodes of 8 GPUs with pods of 1, 2 and 4 of them, and a gang of 8 pods of 8 GPUs: moves of the plan, beside the fewest by
CP-SAT, which may move pods in any order and onto room that other moves make. `quiet`: rounds in which nobody waits.
`urgent`: full nodes of 16 CPUs with pods of 1, 2 and 4 of them, and half as many urgent pods of 2 and 6: who leaves if
all come at once, and if one comes after the other. `gain`: rounds on 5,000 nodes with 50,000 running pods in which
nobody waits and no move gains, by a policy that moves pods for gain and by one that does not.

`moves`: 12,500 nodes of four sizes, crowded unevenly by 150,000 pods of 200 sizes that may all move for gain, without
limits: what the moves of a round save, beside the most that any plan saves as its lower bound says; `gap` is the
difference as a part of what all pods cost.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import click
import msgspec
import numpy as np
from harness.conditions import conditions
from harness.tables import console, print_conditions
from ortools.sat.python import cp_model
from rich.table import Table

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.costs import MODELS
from flowcore.costs.model import Load, counted_amounts
from flowcore.costs.potential import mean_size
from flowcore.costs.scale import OMEGA
from flowcore.model.gangs import Gang
from flowcore.model.nodes import Node
from flowcore.model.pods import PodClass
from flowcore.model.policies import (
    BUILT_IN,
    LostWork,
    Policy,
    ReschedulingMode,
    ReschedulingPolicy,
    ReschedulingReason,
)
from flowcore.model.running_pods import EvictionKind, RunningPod, RunningPods
from flowcore.planning.round import RoundResult, run_round
from flowcore.rules.verdicts import VerdictCache

PARTS = ("cpu", "gang", "quiet", "urgent", "gain", "moves")
GPU = "nvidia.com/gpu"
_MOST = 100_000
_ACTS = msgspec.structs.replace(
    BUILT_IN,
    rescheduling=ReschedulingPolicy(ReschedulingMode.ACT, 0, _MOST, _MOST, _MOST, _MOST, _MOST),
)
POLICIES = {BUILT_IN.name: _ACTS}
_NOW = 1_000_000.0
_GANG, _GPUS = 8, 8


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement.

    Attributes:
        fewest: moves that any plan needs; None: nobody asked.
        saved, at_most: by moves for gain, and by those of any plan; None: nobody asked.
        gap: what that leaves, as a part of what all running pods cost.
    """

    part: str
    case: str
    placed: int
    left: int
    preempted: int
    moved: int
    seconds: float
    fewest: int | None = None
    saved: int | None = None
    at_most: int | None = None
    gap: float | None = None


def _running(name: str, node: str, amounts: dict[str, int], priority: int, *, moves: bool) -> RunningPod:
    requests = tuple(sorted(amounts.items()))
    return RunningPod(
        key=f"bench/{name}",
        uid=name,
        node=node,
        pod_class=PodClass(requests=requests, priority=priority),
        usage=requests,
        started=1.0,
        policy=BUILT_IN.name,
        owner=f"owner of {name}",
        immovable_reason="" if moves else "the benchmark says so",
    )


def _snapshot(nodes: list[Node], running: list[RunningPod], pending: list[PendingPod]) -> Snapshot:
    """A cluster whose running pods are known one by one."""
    snapshot = build_snapshot(
        generation=1,
        now=_NOW,
        table=NodeTable.of(nodes),
        running=[(pod.node, pod.usage, ()) for pod in running],
        pending=tuple(pending),
    )
    return replace(snapshot, running=RunningPods(tuple(running)))


def _row(part: str, case: str, result: RoundResult, seconds: float, fewest: int | None = None) -> Row:
    kinds = [each.kind for each in result.evictions]
    preempted, moved = kinds.count(EvictionKind.PREEMPTION), kinds.count(EvictionKind.MIGRATION)
    return Row(part, case, len(result.placements), len(result.unplaced), preempted, moved, seconds, fewest)


def cpu_rounds(nodes: int) -> dict[str, tuple[Snapshot, Mapping[str, Policy]]]:
    """Snapshot and policies by case; ten running pods a node, four of which may be moved."""
    table = [Node(f"n{at:05}", allocatable=(("cpu", 64_000), ("memory", 2**38), ("pods", 110))) for at in range(nodes)]
    running = [
        _running(f"r{at}-{i}", f"n{at:05}", {"cpu": 5_500 if at % 2 else 6_000}, 10 * (i % 3), moves=i < 4)
        for at in range(nodes)
        for i in range(10)
    ]
    small = [PendingPod(f"bench/s{i}", f"s{i}", PodClass((("cpu", 4_000),), priority=100), BUILT_IN.name)
             for i in range(nodes // 10)]  # fmt: skip
    large = [PendingPod(f"bench/l{i}", f"l{i}", PodClass((("cpu", 12_000),), priority=100), BUILT_IN.name)
             for i in range(nodes // 50)]  # fmt: skip
    all_fit = _snapshot(table, running, small)
    return {
        "all fit, running pods not known": (replace(all_fit, running=None), {BUILT_IN.name: BUILT_IN}),
        "all fit": (all_fit, POLICIES),
        f"{len(large)} do not fit, victims only": (
            _snapshot(table, running, [*small[len(large) :], *large]),
            {BUILT_IN.name: BUILT_IN},
        ),
        f"{len(large)} do not fit, moves first": (
            _snapshot(table, running, [*small[len(large) :], *large]),
            POLICIES,
        ),
    }


def cpu(nodes: int, repeat: int) -> list[Row]:
    """CPU time of rounds."""
    rows = []
    for case, (snapshot, policies) in cpu_rounds(nodes).items():
        seconds = []
        for _ in range(repeat):
            before = time.process_time()
            result = run_round(snapshot, policies)
            seconds.append(time.process_time() - before)
        rows.append(_row("cpu", f"{nodes:,} nodes, {case}", result, statistics.median(seconds)))
    return rows


def gang_round(nodes: int, seed: int) -> Snapshot:
    """A gang of whole nodes on a cluster in pieces."""
    draw = random.Random(seed)
    table = [Node(f"n{at:03}", allocatable=((GPU, _GPUS), ("pods", 110))) for at in range(nodes)]
    running = []
    for at in range(nodes):
        free = _GPUS
        for i in range(draw.randrange(1, 4)):
            size = draw.choice((1, 1, 2, 4))
            if size <= free:
                running.append(_running(f"r{at}-{i}", f"n{at:03}", {GPU: size}, 0, moves=True))
                free -= size
    name = "bench/whole"
    wanted = PodClass(((GPU, _GPUS),))
    pending = [PendingPod(f"bench/g{i}", f"g{i}", wanted, BUILT_IN.name, gangs=(name,)) for i in range(_GANG)]
    return replace(_snapshot(table, running, pending), gangs={name: Gang(name, min_placed=_GANG)})


def gang(nodes: int, seed: int) -> Row:
    """Moves for such a gang, beside the fewest."""
    snapshot = gang_round(nodes, seed)
    before = time.process_time()
    result = run_round(snapshot, POLICIES)
    seconds = time.process_time() - before
    return _row("gang", f"{nodes} nodes, seed {seed}", result, seconds, _fewest_moves(nodes, snapshot))


def _fewest_moves(nodes: int, snapshot: Snapshot) -> int | None:
    """The fewest pods that change their node so that so many nodes are empty; None: that cannot be, or is not known."""
    running = () if snapshot.running is None else snapshot.running.pods
    model = cp_model.CpModel()
    empty = [model.new_bool_var("") for _ in range(nodes)]
    model.add(sum(empty) == _GANG)
    homes = [int(pod.node[1:]) for pod in running]
    sizes = [dict(pod.usage)[GPU] for pod in running]
    at = [[model.new_bool_var("") for _ in range(nodes)] for _ in running]
    for places in at:
        model.add_exactly_one(places)
    for node in range(nodes):
        used = sum(size * places[node] for size, places in zip(sizes, at, strict=True))
        model.add(used + _GPUS * empty[node] <= _GPUS)
    model.minimize(sum(1 - places[home] for places, home in zip(at, homes, strict=True)))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers = 20.0, 2
    return int(solver.objective_value) if solver.solve(model) == cp_model.OPTIMAL else None


def quiet(rounds: int) -> Row:
    """Rounds on a cluster in pieces whose policy moves pods, but where nobody waits."""
    draw = random.Random(1)
    table = [Node(f"n{at:03}", allocatable=((GPU, _GPUS), ("pods", 110))) for at in range(200)]
    running = [
        _running(f"r{at}-{i}", f"n{at:03}", {GPU: draw.choice((1, 2))}, 0, moves=True)
        for at in range(200)
        for i in range(3)
    ]
    snapshot = _snapshot(table, running, [])
    before, left = time.process_time(), 0
    for number in range(rounds):
        result = run_round(replace(snapshot, generation=number, now=_NOW + number), POLICIES)
        left += len(result.evictions)
    seconds = (time.process_time() - before) / rounds
    return Row("quiet", f"{rounds:,} rounds, 600 running pods", 0, 0, 0, left, seconds)


def urgent_round(nodes: int) -> Snapshot:
    """Full nodes, and half as many urgent pods."""
    draw = random.Random(7)
    table = [Node(f"n{at:05}", allocatable=(("cpu", 16), ("memory", 2**38), ("pods", 110))) for at in range(nodes)]
    running: list[RunningPod] = []
    for node in table:
        free = 16
        while free:
            size = draw.choice([each for each in (1, 2, 4) if each <= free])
            running.append(
                _running(f"r{len(running)}", node.name, {"cpu": size}, draw.choice((0, 10, 20)), moves=False)
            )
            free -= size
    pending = [
        PendingPod(f"bench/u{i}", f"u{i}", PodClass((("cpu", 2 + 4 * (i % 2)),), priority=1000), BUILT_IN.name)
        for i in range(nodes // 2)
    ]
    return _snapshot(table, running, pending)


def urgent(nodes: int, repeat: int) -> list[Row]:
    """Such urgent pods at once, and one after the other; each evicts what leaves for it."""
    full = urgent_round(nodes)
    running, pending = full.running.pods if full.running is not None else (), full.pending
    policies, rows = {BUILT_IN.name: BUILT_IN}, []
    for case, batches in (("at once", [pending]), ("one after the other", [(pod,) for pod in pending])):
        seconds = []
        for _ in range(repeat if len(batches) == 1 else 1):
            left, came, placed = {pod.key: pod for pod in running}, list[tuple[str, PodClass]](), 0
            gone, spent = 0, 0.0
            for batch in batches:
                snapshot = build_snapshot(
                    generation=1,
                    now=_NOW,
                    table=full.table,
                    running=[*((pod.node, pod.usage, ()) for pod in left.values()),
                             *((node, pod_class.requests, ()) for node, pod_class in came)],
                    pending=batch,
                )  # fmt: skip
                snapshot = replace(snapshot, running=RunningPods(tuple(left.values())))
                before = time.process_time()
                result = run_round(snapshot, policies)
                spent += time.process_time() - before
                placed, gone = placed + len(result.placements), gone + len(result.evictions)
                came += [(each.node, each.pod.pod_class) for each in result.placements]
                for each in result.evictions:
                    del left[each.pod.key]
            seconds.append(spent)
        median = statistics.median(seconds)
        rows.append(Row("urgent", f"{nodes:,} nodes, {case}", placed, len(pending) - placed, gone, 0, median))
    return rows


def gain(nodes: int, repeat: int) -> list[Row]:
    """CPU time of rounds where no move gains: thirty sizes of pods, and the same on every thirtieth node."""
    rows = []
    for case, reasons in (
        ("without reason Gain", _ACTS.rescheduling.reasons),
        ("with reason Gain", tuple(ReschedulingReason)),
    ):
        snapshot = _settled(nodes)
        cache = VerdictCache.of(snapshot)
        rescheduling = msgspec.structs.replace(
            _ACTS.rescheduling,
            reasons=reasons,
            lost_work=LostWork.IGNORE,
            startup=30,
        )
        policies = {BUILT_IN.name: msgspec.structs.replace(_ACTS, rescheduling=rescheduling)}
        seconds = []
        for _ in range(repeat):
            before = time.process_time()
            result = run_round(snapshot, policies, cache=cache)
            seconds.append(time.process_time() - before)
        rows.append(_row("gain", f"{nodes:,} nodes, {case}", result, statistics.median(seconds)))
    return rows


def _settled(nodes: int) -> Snapshot:
    """Ten pods on each node."""
    table = [Node(f"n{at:05}", allocatable=(("cpu", 64_000), ("memory", 2**38), ("pods", 110))) for at in range(nodes)]
    running = []
    for at in range(nodes):
        for i in range(10):
            amounts = {"cpu": 2_000 + 100 * ((at + 3 * i) % 30)}
            running.append(_running(f"r{at}-{i}", f"n{at:05}", amounts, 0, moves=True))
    # A worker knows each class once.
    classes: dict[PodClass, PodClass] = {}
    running = [
        msgspec.structs.replace(pod, pod_class=classes.setdefault(pod.pod_class, pod.pod_class)) for pod in running
    ]
    return _snapshot(table, running, [])


def moves(nodes: int) -> Row:
    """A round in which everything may move for gain."""
    draw, gi = random.Random(1), 2**30
    shapes = ((16_000, 64 * gi), (32_000, 128 * gi), (64_000, 256 * gi), (64_000, 512 * gi))
    table = []
    for at in range(nodes):
        cpu, memory = draw.choice(shapes)
        table.append(Node(f"n{at:05}", allocatable=(("cpu", cpu), ("memory", memory), ("pods", 110))))
    sizes = [
        {"cpu": draw.choice((250, 500, 1_000, 2_000, 4_000)) + 10 * kind, "memory": draw.choice((1, 2, 4, 8, 16)) * gi}
        for kind in range(200)
    ]
    classes = [PodClass(requests=tuple(sorted(size.items()))) for size in sizes]
    free = [dict(node.allocatable) for node in table]
    weights = [draw.random() ** 2 + 0.05 for _ in table]
    running: list[RunningPod] = []
    for at in draw.choices(range(nodes), weights, k=36 * nodes):
        kind = draw.randrange(len(sizes))
        size, room = sizes[kind], free[at]
        if len(running) == 12 * nodes or room["pods"] < 1 or any(amount > room[name] for name, amount in size.items()):
            continue
        free[at] = {name: amount - size.get(name, 1) for name, amount in room.items()}
        pod = _running(f"r{len(running)}", table[at].name, size, 0, moves=True)
        running.append(msgspec.structs.replace(pod, pod_class=classes[kind], owner=f"owner {kind}"))
    snapshot = _snapshot(table, sorted(running, key=lambda pod: pod.node), [])
    rescheduling = msgspec.structs.replace(
        _ACTS.rescheduling, reasons=(ReschedulingReason.GAIN,), lost_work=LostWork.IGNORE, startup=30, per_round=10**6,
        per_hour=10**6, per_namespace=10**6,
    )  # fmt: skip
    policies = {BUILT_IN.name: msgspec.structs.replace(_ACTS, rescheduling=rescheduling)}
    cache = VerdictCache.of(snapshot)
    before = time.process_time()
    result = run_round(snapshot, policies, cache=cache)
    seconds = time.process_time() - before
    row = _row("moves", f"{nodes:,} nodes, {len(running):,} running pods", result, seconds)
    saved, at_most = -result.cost, -result.lower_bound
    load, model = Load.of(snapshot), MODELS[BUILT_IN.cost.model]
    unit = mean_size([counted_amounts(each) for each in classes], [1] * len(classes), [load])
    all_cost = int(model.potential(load, np.array(unit), BUILT_IN.cost.weights).sum()) + OMEGA * len(running)
    return replace(row, saved=saved, at_most=at_most, gap=(at_most - saved) / (all_cost - saved))


@click.command()
@click.option("--only", type=click.Choice(PARTS), help="One part.")
@click.option("--nodes", default=5_000, show_default=True, type=click.IntRange(min=50), help="Of cpu, urgent, gain.")
@click.option("--moves-nodes", default=12_500, show_default=True, type=click.IntRange(min=10), help="Of part moves.")
@click.option("--gang-nodes", default=30, show_default=True, type=click.IntRange(min=10), help="Of part gang.")
@click.option("--seeds", default=5, show_default=True, type=click.IntRange(min=1), help="Clusters of part gang.")
@click.option("--rounds", default=1_000, show_default=True, type=click.IntRange(min=1), help="Of part quiet.")
@click.option(
    "-n", "--repeat", default=3, show_default=True, type=click.IntRange(min=1), help="Rounds of parts cpu and gain."
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(
    only: str | None,
    nodes: int,
    moves_nodes: int,
    gang_nodes: int,
    seeds: int,
    rounds: int,
    repeat: int,
    output: str,
) -> None:
    """Measures rounds that may evict and move."""
    parts = PARTS if only is None else (only,)
    rows: list[Row] = []
    if "cpu" in parts:
        rows += cpu(nodes, repeat)
    if "gang" in parts:
        rows += [gang(gang_nodes, seed) for seed in range(1, seeds + 1)]
    if "quiet" in parts:
        rows.append(quiet(rounds))
    if "urgent" in parts:
        rows += urgent(nodes // 5, repeat)
    if "gain" in parts:
        rows += gain(nodes, repeat)
    if "moves" in parts:
        rows.append(moves(moves_nodes))
    if output == "json":
        click.echo(msgspec.json.encode({"conditions": conditions(), "rows": [asdict(row) for row in rows]}))
        return
    table = Table(title="Running pods")
    for column in ("part", "case", "placed", "left", "preempted", "moved", "fewest", "saved", "gap", "CPU s a round"):
        table.add_column(column, justify="left" if column in ("part", "case") else "right")
    for row in rows:
        fewest = "" if row.fewest is None else str(row.fewest)
        counts = (str(count) for count in (row.placed, row.left, row.preempted, row.moved))
        saved = "" if row.saved is None else f"{row.saved:,} of at most {row.at_most:,}"
        gap = "" if row.gap is None else f"{row.gap:.1%}"
        table.add_row(row.part, row.case, *counts, fewest, saved, gap, f"{row.seconds:.4f}")
    console.print(table)
    print_conditions(conditions())


if __name__ == "__main__":
    main()
