"""What moves are worth on the openb trace: pods arrive in rounds, a tenth of the running ones ends every round.

    python bench/openb_moves.py DATA_DIR
    python bench/openb_moves.py DATA_DIR --list multigpu50 --percent 1,5 --nodes-kept 4

No cluster takes part. With pods that end, the trace's pods fill only a part of its nodes: every fourth node is kept
(`--nodes-kept`). Each running pod ends in the next round with a probability of a tenth; when it ends is drawn for each
pod with a fixed seed, so that it runs equally long in every row. A row lets a round move so many percent of the running
pods, with no other limit; moves are carried out at once, and a moved pod runs on. The last row pools all nodes of one
GPU model as one node, so that there are no fragments: a relaxation of each round, but no bound on what all rounds do.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click
import msgspec
import numpy as np
from harness import options
from harness.conditions import conditions
from harness.errors import BenchError
from harness.openb_rounds import load
from harness.rechecks import Checker
from harness.tables import console, print_conditions
from openb import GPU, LISTS, MODEL
from rich.table import Table

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.nodes import Node
from flowcore.model.policies import BUILT_IN, Policy, ReschedulingMode, ReschedulingPolicy
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.planning.round import run_round

_ENDS = 0.1
_SEED = 11
_MOST = 10**9
_EXPLAINED = {
    "placed": "pods that got a node in any round; several: of them those that want more than one GPU",
    "waiting": "pods that wait after the last round",
    "GPUs": "in use after a round, mean of the second half of the rounds; wanted: by running and waiting pods, no more"
    " than there are: nothing can use more",
    "stranded": "free GPUs on nodes where no waiting pod that wants GPUs fits, mean of the second half of the rounds",
    "moves": "running pods that changed their node, all rounds; most: in one round",
    "CPU s": "of a round, mean and longest",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One run over all rounds."""

    case: str
    placed: int
    several: int
    waiting: int
    gpus: float
    wanted: float
    stranded: float
    moves: int
    most: int
    cpu_seconds: float
    longest: float


@dataclass(slots=True)
class _Running:
    """A pod with a node, and the round in which it ends."""

    pod: PendingPod
    node: str
    started: int
    ends: int


class Simulation:
    """One row's cluster, round by round.

    Args:
        percent: of the running pods that a round may move; 0: none.
    """

    def __init__(self, trace: Snapshot, nodes: Sequence[Node], percent: int) -> None:
        self._table, self._percent = NodeTable.of(nodes), percent
        empty = build_snapshot(generation=1, now=0.0, table=self._table, running=(), pending=trace.pending)
        self._checker = Checker(empty)
        self._gpu = empty.resources.index(GPU)
        self._running: dict[str, _Running] = {}
        self._waiting: tuple[PendingPod, ...] = ()
        self.placed: list[PendingPod] = []
        self.moves: list[int] = []
        self.used: list[int] = []
        self.wanted: list[int] = []
        self.stranded: list[int] = []
        self.seconds: list[float] = []

    def round(self, number: int, arrivals: tuple[PendingPod, ...]) -> None:
        """Pods end, pods arrive, a round is planned and carried out."""
        self._running = {key: each for key, each in self._running.items() if each.ends > number}
        now = arrivals[-1].created
        snapshot = replace(self._snapshot((*self._waiting, *arrivals)), generation=number + 1, now=now)
        policy = self._policy()
        before = time.process_time()
        result = run_round(snapshot, {policy.name: policy})
        self.seconds.append(time.process_time() - before)
        for each in result.evictions:
            if not each.to:
                raise BenchError(f"round {number}: {each.pod.key} leaves {each.pod.node} for good ({each.kind})")
            self._running[each.pod.key].node = each.to
        self.moves.append(len(result.evictions))
        for placement in result.placements:
            pod = placement.pod
            lasts = 1 + int(math.log(random.Random(f"{_SEED} {pod.key}").random()) / math.log(1 - _ENDS))
            self._running[pod.key] = _Running(pod, placement.node, number, number + lasts)
            self.placed.append(pod)
        self._waiting = tuple(sorted((each.pod for each in result.unplaced), key=lambda pod: (pod.created, pod.key)))
        self._look(number)

    def row(self, case: str) -> Row:
        """What all rounds came to."""
        half = len(self.used) // 2
        return Row(
            case=case,
            placed=len(self.placed),
            several=sum(self._gpus(pod) > 1 for pod in self.placed),
            waiting=len(self._waiting),
            gpus=statistics.mean(self.used[half:]),
            wanted=statistics.mean(self.wanted[half:]),
            stranded=statistics.mean(self.stranded[half:]),
            moves=sum(self.moves),
            most=max(self.moves),
            cpu_seconds=statistics.mean(self.seconds),
            longest=max(self.seconds),
        )

    def _snapshot(self, pending: tuple[PendingPod, ...]) -> Snapshot:
        running = [
            RunningPod(
                key=key,
                uid=each.pod.uid,
                node=each.node,
                pod_class=each.pod.pod_class,
                usage=_usage(each.pod),
                started=1.0,
                policy=BUILT_IN.name,
                owner=key,
            )
            for key, each in self._running.items()
        ]
        made = build_snapshot(
            generation=1,
            now=0.0,
            table=self._table,
            running=[(each.node, each.usage, ()) for each in running],
            pending=pending,
        )
        return replace(made, running=RunningPods(tuple(running)) if self._percent else None)

    def _policy(self) -> Policy:
        if not self._percent:
            return BUILT_IN
        limit = len(self._running) * self._percent // 100
        limits = ReschedulingPolicy(ReschedulingMode.ACT, 0, limit, _MOST, _MOST, _MOST, _MOST)
        return msgspec.structs.replace(BUILT_IN, rescheduling=limits)

    def _look(self, number: int) -> None:
        """Counts anew from the pods what is used, free and stranded."""
        checker = self._checker
        placed = [(each.pod, self._table.index[each.node]) for each in self._running.values()]
        free = checker.free(placed)
        wrong = sum(not checker.allowed(pod.pod_class)[at] for pod, at in placed)
        if (free < 0).any() or wrong:
            raise BenchError(f"round {number}: a node is overcommitted, or one of {wrong} pods may not be on its node")
        usable = np.zeros(len(free), dtype=np.bool_)
        for asked in {pod.pod_class for pod in self._waiting if self._gpus(pod)}:
            usable |= checker.fits(asked, free)
        every = int(checker.snapshot.allocatable[:, self._gpu].sum())
        used = every - int(free[:, self._gpu].sum())
        self.used.append(used)
        self.wanted.append(min(every, used + sum(self._gpus(pod) for pod in self._waiting)))
        self.stranded.append(int(free[~usable, self._gpu].sum()))

    def _gpus(self, pod: PendingPod) -> int:
        return int(self._checker.wanted(pod.pod_class)[self._gpu])


def _usage(pod: PendingPod) -> tuple[tuple[str, int], ...]:
    return (*pod.pod_class.requests, ("pods", 1))


def pooled(nodes: Sequence[Node]) -> list[Node]:
    """All nodes of one GPU model as one node."""
    by_model: defaultdict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        by_model[dict(node.labels).get(MODEL, "")].append(node)
    made = []
    for members in by_model.values():
        total: defaultdict[str, int] = defaultdict(int)
        for node in members:
            for resource, amount in node.allocatable:
                total[resource] += amount
        made.append(msgspec.structs.replace(members[0], allocatable=tuple(sorted(total.items()))))
    return made


def simulate(trace: Snapshot, nodes: Sequence[Node], percent: int, arrivals: int, case: str) -> Row:
    """All rounds of one row."""
    simulation = Simulation(trace, nodes, percent)
    for number, first in enumerate(range(0, len(trace.pending), arrivals)):
        simulation.round(number, trace.pending[first : first + arrivals])
    return simulation.row(case)


def _print(rows: list[Row], title: str) -> None:
    table = Table(title=title)
    table.add_column("at most moved a round")
    for column in ("placed", "several", "waiting", "GPUs", "wanted", "stranded", "moves", "most", "CPU s"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.case,
            str(row.placed),
            str(row.several),
            str(row.waiting),
            f"{row.gpus:.0f}",
            f"{row.wanted:.0f}",
            f"{row.stranded:.1f}",
            str(row.moves),
            str(row.most),
            f"{row.cpu_seconds:.2f}, {row.longest:.2f}",
        )
    console.print(table)
    print_conditions({**_EXPLAINED, **conditions()})


@click.command()
@click.argument("folder", metavar="DATA_DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--list", "which", type=click.Choice(LISTS), default="default", show_default=True, help="Which pods.")
@click.option("--percent", default="1,5", show_default=True, callback=options.numbers, help="Of running pods.")
@click.option("--arrivals", default=200, show_default=True, type=click.IntRange(min=1), help="Pods in a round.")
@click.option("--nodes-kept", default=4, show_default=True, type=click.IntRange(min=1), help="One node of so many.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(folder: Path, which: str, percent: list[int], arrivals: int, nodes_kept: int, output: str) -> None:
    """GPUs in use and stranded, with and without moves."""
    trace = load(folder, which, aged=True)
    nodes = trace.table.nodes[::nodes_kept]
    rows = [simulate(trace, nodes, 0, arrivals, "nobody")]
    rows += [simulate(trace, nodes, each, arrivals, f"{each} %") for each in percent]
    rows.append(simulate(trace, pooled(nodes), 0, arrivals, "one node per GPU model"))
    if output == "json":
        click.echo(msgspec.json.encode({"conditions": conditions(), "rows": [asdict(row) for row in rows]}))
        return
    kept = f"{len(nodes)} of {len(trace.table.nodes)} nodes"
    _print(rows, f"openb {which}: {len(trace.pending)} pods in rounds of {arrivals}, {kept}")


if __name__ == "__main__":
    main()
