"""The openb trace placed by the engine and one by one: pods placed, GPUs allocated, GPUs stranded.

GPUs are whole ones, as extended resources are (openb.py): the trace then asks for 120 % of them. A free GPU is stranded
when no waiting pod that asks for GPUs fits on its node, whether cpu, memory, GPUs or the GPU's model keep it away.

All at once: every pod waits when the round begins, all equally long. Arriving: pods come in the order of their creation
times and are cut into rounds of equally many arrivals; a round begins when its last pod comes, nothing ever leaves,
and what stays pending waits for the next round beside the new pods. One by one each pod takes its turn in the same
order, so that rounds make no difference: what fits nowhere at its turn never will.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from openb import CREATED, GPU, nodes_file, pods_file, read_nodes, read_pods, write_dump
from thalweg.dumps.reader import read_dump
from thalweg_controlplane.client.objects import Manifest

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.policies import BUILT_IN
from flowcore.planning.round import RoundResult
from harness import greedy
from harness.budget import fewest_left, round_within
from harness.rechecks import Checker, Placed
from harness.rows import Row


def compare(folder: str, which: str, arrivals: int) -> list[Row]:
    """A row for each method; ``arrivals`` a round, 0: all at once."""
    snapshot = load(Path(folder), which, aged=arrivals > 0)
    checker = Checker(snapshot)
    case = f"{which}, " + (f"rounds of {arrivals} arrivals" if arrivals else "all at once")
    rows = []
    for taste in (greedy.Taste.LEAST, greedy.Taste.MOST):
        before = time.process_time()
        placed = greedy.place(checker, snapshot.pending, taste)
        rows.append(_row(case, taste.value, checker, placed, time.process_time() - before))
    before = time.process_time()
    placed, results = _arriving(snapshot, arrivals) if arrivals else _at_once(snapshot)
    row = _row(case, "rounds" if arrivals else results[0].method, checker, placed, time.process_time() - before)
    row.solves = sum(result.solves for result in results)
    row.goal = "never worse, more GPUs"
    row.reached = all(
        (row.placed or 0) >= (other.placed or 0)
        and (row.gpus or 0) > (other.gpus or 0)
        and (row.stranded or 0) <= (other.stranded or 0)
        for other in rows
    )
    if not arrivals:
        row.cost, row.gap, row.certified = results[0].cost, results[0].gap, results[0].certified
        row.fewest = fewest_left(results[0])
    return [*rows, row]


def load(folder: Path, which: str, *, aged: bool) -> Snapshot:
    """The whole trace as a snapshot; see ``snapshot_of``."""
    return snapshot_of(read_nodes(nodes_file(folder)), read_pods(pods_file(folder, which)), aged=aged)


def snapshot_of(nodes: Sequence[Manifest], manifests: Sequence[Manifest], *, aged: bool) -> Snapshot:
    """Empty nodes with all pods waiting; `aged`: in the order of their creation, else all equally long."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "openb.json"
        write_dump(path, [*nodes, *manifests])
        dump = read_dump((str(path),))
    created = {
        f"default/{each['metadata']['name']}": float(each["metadata"].get("annotations", {}).get(CREATED, 0))
        for each in manifests
    }
    pods = [pod for pod in dump.cluster.pods.values() if not pod.skip_reason]
    if aged:
        pods.sort(key=lambda pod: created[pod.key])
    # One second and on: 0 means unknown.
    pending = tuple(
        PendingPod(pod.key, pod.uid, pod.pod_class, BUILT_IN.name, 1.0 + created[pod.key] if aged else 0.0)
        for pod in pods
    )
    return build_snapshot(
        generation=1, now=0.0, table=NodeTable.of(dump.cluster.nodes.values()), running=(), pending=pending
    )  # fmt: skip


def _at_once(snapshot: Snapshot) -> tuple[list[Placed], list[RoundResult]]:
    result = round_within(snapshot)
    return Checker(snapshot).placed(result), [result]


def _arriving(snapshot: Snapshot, arrivals: int) -> tuple[list[Placed], list[RoundResult]]:
    placed: list[Placed] = []
    results: list[RoundResult] = []
    index = {node.name: at for at, node in enumerate(snapshot.table.nodes)}
    state, waiting = snapshot, ()
    for first in range(0, len(snapshot.pending), arrivals):
        new = snapshot.pending[first : first + arrivals]
        result = round_within(replace(state, now=new[-1].created, pending=(*waiting, *new)))
        placed += [(each.pod, index[each.node]) for each in result.placements]
        waiting = tuple(sorted((left.pod for left in result.unplaced), key=lambda pod: pod.created))
        state = result.after
        results.append(result)
    return placed, results


def _row(case: str, method: str, checker: Checker, placed: Sequence[Placed], seconds: float) -> Row:
    snapshot = checker.snapshot
    column = snapshot.resources.index(GPU)
    free = checker.free(placed)
    there = {pod.key for pod, _ in placed}
    waiting = {pod.pod_class for pod in snapshot.pending if pod.key not in there}
    usable = np.zeros(len(free), dtype=np.bool_)
    fitting = 0
    for asked in waiting:
        fits = checker.fits(asked, free)
        fitting += bool(fits.any())
        if checker.wanted(asked)[column]:
            usable |= fits
    wrong = sum(not checker.allowed(pod.pod_class)[at] for pod, at in placed)
    over = int((free < 0).any(axis=1).sum())
    twice = len(placed) - len(there)
    return Row(
        part="openb",
        case=case,
        method=method,
        placed=len(placed),
        left=len(snapshot.pending) - len(placed),
        gpus=int(snapshot.allocatable[:, column].sum() - free[:, column].sum()),
        stranded=int(free[~usable, column].sum()),
        cpu_seconds=seconds,
        safe="yes" if not (wrong or over or twice) else f"NO: {over} overcommitted, {wrong} misplaced, {twice} twice",
        note=f"{fitting} waiting classes still fit" if fitting else "",
    )
