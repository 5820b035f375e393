"""Gangs at 1.3 times what there is room for: how many are complete, and what they are worth.

    python bench/gangs.py
    python bench/gangs.py --gangs 100 --budget 0.3 --budget 3 --exact-seconds 60 -o json

No cluster takes part. Instances: `slots` (one resource, nodes of ten slots, gangs of 2 to 16 pods, all pods worth the
same), `slots, by gang` (the same, all gangs worth the same), `resources` (cpu, memory and GPUs, gangs of one or two of
ten classes, nodes of two kinds, four priorities). Methods: pod by pod in the order in which they came, gangs by turns,
as a scheduler without gangs has it; a round with a budget in CPU seconds. The bound: what no choice of gangs is worth
more than, by CP-SAT up to 100 gangs within its seconds, above by the linear program over units, classes and nodes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import click
import msgspec
import numpy as np
from harness.conditions import conditions
from harness.tables import console, print_conditions
from ortools.linear_solver import pywraplp
from rich.table import Table

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.gangs import Gang
from flowcore.model.nodes import Node
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN
from flowcore.planning.round import Round, RoundResult, run_one_by_one

#: What is asked for, of what there is.
LOAD = 1.3
GI = 2**30
#: Cpu (milli), memory (GiB), GPUs.
SHAPES = (
    (500, 2, 0), (1000, 4, 0), (2000, 4, 0), (4000, 16, 0), (1000, 8, 0),
    (500, 8, 0), (4000, 16, 1), (8000, 32, 1), (16000, 64, 2), (2000, 16, 1),
)  # fmt: skip
PRIORITIES = (0, 100, 1_000, 5_000)
#: Nobody has waited long enough for room to be kept.
_NOW = 1_100.0


@dataclass(frozen=True, slots=True)
class Instance:
    """Gangs on a cluster, and what each is worth where it is complete."""

    name: str
    snapshot: Snapshot
    value: dict[str, float]


@dataclass(frozen=True, slots=True)
class Row:
    """One method on one instance."""

    case: str
    method: str
    gangs: int
    complete: int
    incomplete_pods: int
    worth: float
    bound: float
    seconds: float
    note: str = ""

    @property
    def gap(self) -> float:
        """How much of the bound is not reached."""
        return 1 - self.worth / self.bound


def slots(count: int, seed: int, *, by_gang: bool) -> Instance:
    """One resource."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 17, count).tolist()
    total = int(sum(sizes) / LOAD)
    widths = [10] * (total // 10) + ([total % 10] if total % 10 else [])
    nodes = [_node(at, width * 1000, 1000, 0) for at, width in enumerate(widths)]
    wishes = [
        ([(PodClass(_amounts(1000, 0, 0), priority=int(10_000 * (16 / n - 1)) if by_gang else 0), n)]) for n in sizes
    ]
    return _instance("slots, by gang" if by_gang else "slots", nodes, wishes)


def resources(count: int, seed: int) -> Instance:
    """Three resources, two classes in half of the gangs."""
    random = np.random.default_rng(seed)
    wishes, total = [], np.zeros(3)
    for _ in range(count):
        kinds = random.choice(len(SHAPES), int(random.integers(1, 3)), replace=False).tolist()
        priority = int(random.choice(PRIORITIES))
        sizes = [int(random.integers(2, 17)), *(1 for _ in kinds[1:])]
        wishes.append(
            [(PodClass(_amounts(*SHAPES[kind]), priority=priority), n) for kind, n in zip(kinds, sizes, strict=True)]
        )
        total += sum(np.array(SHAPES[kind]) * n for kind, n in zip(kinds, sizes, strict=True))
    width = max(1, count * 2 // 5)
    share = total / LOAD / width
    nodes = []
    for at in range(width):
        size = share * (0.6 if at % 2 else 1.4)
        nodes.append(_node(at, int(size[0]), int(size[1]), int(np.floor(size[2] + 0.5))))
    return _instance("resources", nodes, wishes)


def _amounts(cpu: int, memory: int, gpus: int) -> tuple[tuple[str, int], ...]:
    found = {"cpu": cpu, "memory": memory * GI, "nvidia.com/gpu": gpus}
    return tuple((name, amount) for name, amount in found.items() if amount)


def _node(at: int, cpu: int, memory: int, gpus: int) -> Node:
    return Node(f"node-{at:04}", allocatable=(*_amounts(cpu, memory, gpus), ("pods", 110)))


def _instance(name: str, nodes: list[Node], wishes: Sequence[Sequence[tuple[PodClass, int]]]) -> Instance:
    """Pods of all gangs by turns: a second passes between the first pods of all and their second ones."""
    pending, gangs, value = [], {}, {}
    price = BUILT_IN.unscheduled
    for at, wish in enumerate(wishes):
        gang = f"gang-{at:04}"
        classes = [pod_class for pod_class, n in wish for _ in range(n)]
        pending += [
            PendingPod(f"default/{gang}-{i}", f"{gang}-{i}", pod_class, BUILT_IN.name, 1_000.0 + i, gangs=(gang,))
            for i, pod_class in enumerate(classes)
        ]
        gangs[gang] = Gang(gang, len(classes))
        value[gang] = sum(price.base + price.per_priority * each.priority for each in classes) / price.base
    found = build_snapshot(generation=1, now=_NOW, table=NodeTable.of(nodes), running=(), pending=tuple(pending))
    return Instance(name, replace(found, gangs=gangs), value)


def bound(instance: Instance, seconds: float | None) -> tuple[float, str]:
    """What no choice of gangs is worth more than: by CP-SAT in so many seconds, None: by the linear program."""
    snapshot = instance.snapshot
    solver = pywraplp.Solver.CreateSolver("GLOP" if seconds is None else "SAT")
    infinity = solver.infinity()

    def variable(most: float) -> pywraplp.Variable:
        return solver.NumVar(0, most, "") if seconds is None else solver.IntVar(0, most, "")

    needs: dict[str, Counter[PodClass]] = {}
    for pod in snapshot.pending:
        needs.setdefault(pod.gangs[0], Counter())[msgspec.structs.replace(pod.pod_class, priority=0)] += 1
    chosen = {gang: variable(1) for gang in needs}
    capacity: dict[tuple[int, str], pywraplp.Constraint] = {}
    for at, node in enumerate(snapshot.table.nodes):
        for name, amount in node.allocatable:
            unit = GI if name == "memory" else 1
            capacity[at, name] = solver.Constraint(-infinity, amount // unit)
    for pod_class in dict.fromkeys(each for found in needs.values() for each in found):
        placed = solver.Constraint(0, 0)
        for gang, found in needs.items():
            if found[pod_class]:
                placed.SetCoefficient(chosen[gang], -found[pod_class])
        asked = {**dict(pod_class.requests), "pods": 1}
        for at, node in enumerate(snapshot.table.nodes):
            has = dict(node.allocatable)
            fit = min(has.get(name, 0) // amount for name, amount in asked.items())
            if fit:
                here = variable(fit)
                placed.SetCoefficient(here, 1)
                for name, amount in asked.items():
                    capacity[at, name].SetCoefficient(here, amount // (GI if name == "memory" else 1))
    for gang, each in chosen.items():
        solver.Objective().SetCoefficient(each, instance.value[gang])
    solver.Objective().SetMaximization()
    if seconds is not None:
        solver.SetTimeLimit(int(seconds * 1000))
    status = solver.Solve()
    if seconds is None:
        return solver.Objective().Value(), "linear program"
    proved = ", proved best" if status == pywraplp.Solver.OPTIMAL else f" after {seconds:g} s"
    return solver.Objective().BestBound(), f"CP-SAT{proved}: {solver.Objective().Value():.1f} found"


def judge(instance: Instance, method: str, result: RoundResult, seconds: float, most: float, note: str) -> Row:
    """What a plan comes to; gangs that are not complete are worth nothing."""
    placed = Counter(name for placement in result.placements for name in placement.pod.gangs)
    gangs = instance.snapshot.gangs
    complete = {name for name, count in placed.items() if count >= gangs[name].min_placed}
    return Row(
        case=instance.name,
        method=method,
        gangs=len(gangs),
        complete=len(complete),
        incomplete_pods=sum(count for name, count in placed.items() if name not in complete),
        worth=sum(instance.value[name] for name in complete),
        bound=most,
        seconds=seconds,
        note=note,
    )


def measure(instance: Instance, budgets: Sequence[float], exact_seconds: float) -> Iterator[Row]:
    """A row for each method."""
    few = len(instance.snapshot.gangs) <= 100
    most, told = bound(instance, exact_seconds if few else None)
    started = time.process_time()
    plain = run_one_by_one(instance.snapshot)
    yield judge(instance, "pod by pod", plain, time.process_time() - started, most, told)
    for budget in budgets:
        started = time.process_time()
        this = Round(instance.snapshot)
        while this.step() and time.process_time() < started + budget:
            pass
        result = this.result()
        seconds = time.process_time() - started
        note = f"{result.steps} steps, {result.method}, cost at most {result.gap:.1%} too high"
        yield judge(instance, f"a round, {budget:g} s", result, seconds, most, note)


def print_table(rows: Sequence[Row]) -> None:
    """All rows."""
    table = Table(title=f"Gangs that ask for {LOAD} times what there is")
    for column in (
        "case",
        "gangs",
        "method",
        "complete",
        "pods of others",
        "worth",
        "bound",
        "below it",
        "CPU s",
        "note",
    ):
        table.add_column(column, justify="left" if column in ("case", "method", "note") else "right")
    for row in rows:
        table.add_row(
            row.case, str(row.gangs), row.method, str(row.complete), str(row.incomplete_pods), f"{row.worth:.1f}",
            f"{row.bound:.1f}", f"{row.gap:.1%}", f"{row.seconds:.2f}", row.note,
        )  # fmt: skip
    console.print(table)


@click.command()
@click.option("--gangs", "counts", type=int, multiple=True, default=(100, 1_000), show_default=True)
@click.option(
    "--budget", "budgets", type=float, multiple=True, default=(0.3, 3.0), show_default=True, help="CPU seconds."
)
@click.option("--exact-seconds", default=30.0, show_default=True, help="Seconds of CP-SAT for the bound.")
@click.option("--seed", default=1, show_default=True)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(counts: tuple[int, ...], budgets: tuple[float, ...], exact_seconds: float, seed: int, output: str) -> None:
    """Complete gangs and what they are worth, method by method."""
    told, rows = conditions(), []
    for count in counts:
        for instance in (slots(count, seed, by_gang=False), slots(count, seed, by_gang=True), resources(count, seed)):
            rows += measure(instance, budgets, exact_seconds)
    if output == "json":
        found = [{**asdict(row), "gap": row.gap} for row in rows]
        click.echo(msgspec.json.encode({"conditions": told, "rows": found}))
    else:
        print_table(rows)
        print_conditions(told)


if __name__ == "__main__":
    main()
