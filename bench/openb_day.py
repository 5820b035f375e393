"""What moves for gain are worth on a day of the openb trace: pods come and end, and are placed one by one.

    python bench/openb_day.py DATA_DIR
    python bench/openb_day.py DATA_DIR --percent 1,5 --nodes-kept 4

No cluster takes part. The pods of the list come in its order, equally many every quarter of an hour, and each runs for
a time that is drawn for it with a fixed seed, the same in every row. Each takes the node that kube-scheduler would
choose (LeastAllocated), as if Thalweg only watched. Every fourth node is kept, so that the pods fill most of them. Then
a round moves running pods, for those that still wait and for gain: at most so many percent of the day's pods in a day,
by the hour. Moves are carried out at once: the pod runs on, and starts again where it goes.

Stranded GPUs are counted anew after each round, by the requests and node selectors of all pods that run or wait: of the
free GPUs so many as a pod could not use that is drawn among them, one with more GPUs as many times as likely. Its kind
takes as many of a node's GPUs as its pods find room for there.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import click
import msgspec
import numpy as np
from harness import greedy, options
from harness.conditions import conditions
from harness.errors import BenchError
from harness.openb_rounds import load
from harness.rechecks import Checker, Placed
from harness.tables import console, print_conditions
from openb import GPU, LISTS
from rich.table import Table

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.assembly import build_snapshot
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
from flowcore.model.running_pods import RecentMove, RunningPod, RunningPods
from flowcore.planning.problem.result import Eviction
from flowcore.planning.round import run_round

_ROUNDS, _SECONDS = 96, 900.0
_HOUR = 3600.0
#: When the day begins: 0 means unknown.
_MIDNIGHT = 1e6
_MIN_AGE = 3600
_SEED = 11
_MOST = 10**9
_WHOLE = 8
_EXPLAINED = {
    "waiting": "pods that wait as the day ends",
    "GPUs": "in use, mean of the second half of the day",
    "stranded": "free GPUs that no more pods could use of a kind that is drawn by its GPUs; the same mean",
    "whole nodes": f"with {_WHOLE} GPUs, all of them free; the same mean",
    "flaps": "moves to a node that the pod had left before, or within an hour of its start or last move",
    "CPU s": "of a round that may move pods, mean and longest",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One run of the day."""

    case: str
    waiting: int
    gpus: float
    stranded: float
    whole_nodes: float
    moves: int
    for_gain: int
    flaps: int
    cpu_seconds: float
    longest: float


@dataclass(slots=True)
class _Running:
    """A pod with a node; times in seconds since the epoch."""

    pod: PendingPod
    node: str
    started: float
    ends: float
    left: set[str] = field(default_factory=set)


class Day:
    """One row's cluster.

    Args:
        policy: moves pods for gain; None: nobody moves.
        runs_for: hours, the mean of the pods.
        taste: which node a pod gets as it comes.
    """

    def __init__(
        self,
        trace: Snapshot,
        nodes: Sequence[Node],
        policy: Policy | None,
        runs_for: float,
        taste: greedy.Taste = greedy.Taste.LEAST,
    ) -> None:
        self._table, self._policy, self._runs_for = NodeTable.of(nodes), policy, runs_for * _HOUR
        self._taste = taste
        empty = build_snapshot(generation=1, now=0.0, table=self._table, running=(), pending=trace.pending)
        self._checker, self._gpu = Checker(empty), empty.resources.index(GPU)
        self._running: dict[str, _Running] = {}
        self._waiting: tuple[PendingPod, ...] = ()
        self._moves: list[tuple[float, Eviction]] = []
        self._joined = self._flaps = 0
        self._used: list[int] = []
        self._stranded: list[float] = []
        self._whole: list[int] = []
        self._seconds: list[float] = []

    def quarter(self, number: int, arrivals: tuple[PendingPod, ...]) -> None:
        """Pods end, pods come and are placed one by one, and some move."""
        now = _MIDNIGHT + number * _SECONDS
        self._running = {key: each for key, each in self._running.items() if each.ends > now}
        waiting = (*self._waiting, *(msgspec.structs.replace(pod, created=now) for pod in arrivals))
        for pod, place in greedy.place(self._checker, waiting, self._taste, free=self._free()):
            self._start(pod, self._table.nodes[place].name, now)
        self._waiting = tuple(pod for pod in waiting if pod.key not in self._running)
        if self._policy is not None:
            self._move(self._policy, now)
        self._look(number)

    def homes(self) -> dict[str, tuple[str, float]]:
        """The node of each pod that runs, and when it started, in seconds since the epoch."""
        return {key: (pod.node, pod.started) for key, pod in self._running.items()}

    def waiting(self) -> set[str]:
        """Keys of the pods that wait."""
        return {pod.key for pod in self._waiting}

    def row(self, case: str) -> Row:
        """What the day came to."""
        half = len(self._used) // 2
        return Row(
            case=case,
            waiting=len(self._waiting),
            gpus=statistics.mean(self._used[half:]),
            stranded=statistics.mean(self._stranded[half:]),
            whole_nodes=statistics.mean(self._whole[half:]),
            moves=len(self._moves),
            for_gain=self._joined,
            flaps=self._flaps,
            cpu_seconds=statistics.mean(self._seconds) if self._seconds else 0.0,
            longest=max(self._seconds, default=0.0),
        )

    def _move(self, policy: Policy, now: float) -> None:
        snapshot = self._snapshot(policy, now)
        before = time.process_time()
        result = run_round(snapshot, {policy.name: policy})
        self._seconds.append(time.process_time() - before)
        self._joined += sum(bool(move.gain) for move in result.evictions)
        for move in result.evictions:
            pod = self._running[move.pod.key]
            self._flaps += move.to in pod.left or now - pod.started < _MIN_AGE
            pod.left.add(pod.node)
            pod.node, pod.started = move.to, now
            self._moves.append((now, move))
        for placement in result.placements:
            self._start(placement.pod, placement.node, now)
        self._waiting = tuple(pod for pod in self._waiting if pod.key not in self._running)

    def _start(self, pod: PendingPod, node: str, now: float) -> None:
        lasts = -self._runs_for * math.log(1 - random.Random(f"{_SEED} {pod.key}").random())
        self._running[pod.key] = _Running(pod, node, now, now + lasts)

    def _snapshot(self, policy: Policy, now: float) -> Snapshot:
        running = tuple(
            RunningPod(
                key=key,
                uid=pod.pod.uid,
                node=pod.node,
                pod_class=pod.pod.pod_class,
                usage=_usage(pod.pod),
                started=pod.started,
                policy=policy.name,
                owner=key,
                immovable_reason="young" if now - pod.started < _MIN_AGE else "",
            )
            for key, pod in self._running.items()
        )
        made = build_snapshot(
            generation=1,
            now=now,
            table=self._table,
            running=[(pod.node, pod.usage, ()) for pod in running],
            pending=self._waiting,
        )
        recent = tuple(
            RecentMove(policy.name, move.pod.node, "", move.pod.owner, now - then)
            for then, move in self._moves
            if now - then < _HOUR
        )
        return replace(made, running=RunningPods(running, moves=recent))

    def _placed(self) -> list[Placed]:
        return [(each.pod, self._table.index[each.node]) for each in self._running.values()]

    def _free(self) -> greedy.Int64s:
        return self._checker.free(self._placed())

    def _look(self, number: int) -> None:
        """Counts anew from the pods what is used, free and stranded."""
        checker, free = self._checker, self._free()
        wrong = sum(not checker.allowed(pod.pod_class)[place] for pod, place in self._placed())
        if (free < 0).any() or wrong:
            raise BenchError(
                f"quarter {number}: a node is overcommitted, or one of {wrong} pods may not be on its node"
            )
        kinds = Counter(pod.pod_class for pod in (*(each.pod for each in self._running.values()), *self._waiting))
        asked = {kind: int(checker.wanted(kind)[self._gpu]) * count for kind, count in kinds.items()}
        gpus, every = free[:, self._gpu], checker.snapshot.allocatable[:, self._gpu]
        self._used.append(int(every.sum() - gpus.sum()))
        useless = sum(share * (int(gpus.sum()) - self._useful(kind, free)) for kind, share in asked.items() if share)
        self._stranded.append(useless / sum(asked.values()))
        self._whole.append(int(((every == _WHOLE) & (gpus == _WHOLE)).sum()))

    def _useful(self, kind: PodClass, free: greedy.Int64s) -> int:
        """GPUs that pods of a kind could still use."""
        wanted, nodes = self._checker.wanted(kind), np.nonzero(self._checker.fits(kind, free))[0]
        pods = (free[nodes][:, wanted > 0] // wanted[wanted > 0]).min(axis=1)
        return int(pods.sum() * wanted[self._gpu])


def _usage(pod: PendingPod) -> tuple[tuple[str, int], ...]:
    return (*pod.pod_class.requests, ("pods", 1))


def _policy(moves: int) -> Policy:
    """Moves for gain and for nothing else, so many in a day: services whose replicas lose no work."""
    rescheduling = ReschedulingPolicy(
        mode=ReschedulingMode.ACT,
        min_age=_MIN_AGE,
        per_round=_MOST,
        per_hour=-(-moves // 24),
        per_node=_MOST,
        per_namespace=_MOST,
        per_owner=_MOST,
        reasons=(ReschedulingReason.WAITING_PODS, ReschedulingReason.GAIN),
        lost_work=LostWork.IGNORE,
    )
    return msgspec.structs.replace(BUILT_IN, rescheduling=rescheduling)


def simulate(trace: Snapshot, nodes: Sequence[Node], policy: Policy | None, runs_for: float, case: str) -> Row:
    """The day of one row."""
    day = Day(trace, nodes, policy, runs_for)
    pass_day(day, trace.pending)
    return day.row(case)


def pass_day(day: Day, pods: Sequence[PendingPod]) -> float:
    """All pods come, equally many each quarter of an hour; returns when the day ends, in seconds since the epoch."""
    for number in range(_ROUNDS):
        day.quarter(number, tuple(pods[number * len(pods) // _ROUNDS : (number + 1) * len(pods) // _ROUNDS]))
    return _MIDNIGHT + _ROUNDS * _SECONDS


def _print(rows: list[Row], title: str) -> None:
    table = Table(title=title)
    table.add_column("moved in the day, at most")
    for column in ("waiting", "GPUs", "stranded", "whole nodes", "moves, for gain", "flaps", "CPU s"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.case,
            str(row.waiting),
            f"{row.gpus:.0f}",
            f"{row.stranded:.1f}",
            f"{row.whole_nodes:.1f}",
            f"{row.moves}, {row.for_gain}",
            str(row.flaps),
            f"{row.cpu_seconds:.2f}, {row.longest:.2f}",
        )
    console.print(table)
    print_conditions({**_EXPLAINED, **conditions()})


@click.command()
@click.argument("folder", metavar="DATA_DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--list", "which", type=click.Choice(LISTS), default="default", show_default=True, help="Which pods.")
@click.option("--percent", default="1,5", show_default=True, callback=options.numbers, help="Of the day's pods.")
@click.option("--runs-for", default=4.0, show_default=True, type=click.FloatRange(min=0.25), help="Hours, the mean.")
@click.option("--nodes-kept", default=4, show_default=True, type=click.IntRange(min=1), help="One node of so many.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(folder: Path, which: str, percent: list[int], runs_for: float, nodes_kept: int, output: str) -> None:
    """GPUs stranded, moves and flaps of a day, with and without moves for gain."""
    trace = load(folder, which, aged=True)
    nodes = trace.table.nodes[::nodes_kept]
    cases = [("nobody", None)]
    for each in percent:
        moves = len(trace.pending) * each // 100
        cases.append((f"{each} %", _policy(moves)))
    rows = [simulate(trace, nodes, policy, runs_for, case) for case, policy in cases]
    if output == "json":
        click.echo(msgspec.json.encode({"conditions": conditions(), "rows": [asdict(row) for row in rows]}))
        return
    kept = f"{len(nodes)} of {len(trace.table.nodes)} nodes"
    _print(rows, f"A day of openb {which}: {len(trace.pending)} pods, {kept}, mean run {runs_for:g} h")


if __name__ == "__main__":
    main()
