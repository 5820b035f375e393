"""What one process of the engine's benchmark does: a job comes in as JSON, rows of the table go out as JSON.

Every job has a process of its own, so that the peak memory it reports is that job's and nothing is warm that should not
be. Garbage is collected as rarely as in the operator's worker.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from flowcore.cluster.arrays.snapshot import NodeTable, Snapshot
from flowcore.model.pod_index import PodIndex
from flowcore.planning.round import run_round
from harness import networks, openb_rounds, quality, warm
from harness.budget import USUAL, fewest_left, round_within
from harness.instances import Size, make
from harness.rechecks import Checker
from harness.rows import Row
from harness.ruled import under_rules
from harness.usage import used

#: A row with a goal gets this share of it as its budget: the budget is looked at between two steps only.
_OF_THE_GOAL = 0.5


class SizeJob(msgspec.Struct, tag="size"):
    """A round over a generated cluster, nothing cached before it.

    Attributes:
        ruled: with rules between pods and gangs.
        budget: CPU seconds; None: half the goal, or the usual ones.
    """

    part: str
    size: Size
    repeat: int
    goal_seconds: float | None = None
    goal_gigabytes: float | None = None
    ruled: bool = False
    budget: float | None = None

    def run(self) -> list[Row]:
        """One row."""
        instance = make(self.size)
        if self.ruled:
            instance = replace(instance, snapshot=under_rules(instance.snapshot))
        usual = _OF_THE_GOAL * self.goal_seconds if self.goal_seconds else USUAL
        seconds, again, peak = [], [], 0.0
        for _ in range(self.repeat):
            snapshot = _cold(instance.snapshot)
            before = time.process_time()
            result = round_within(snapshot, self.budget or usual)
            between = time.process_time()
            peak = peak or used([os.getpid()]).peak_mib  # of one round
            second = run_round(snapshot, steps=result.steps)
            seconds.append(between - before)
            again.append(time.process_time() - between)
        took = statistics.median(seconds)
        verdict = str(Checker(instance.snapshot, instance.running).check(result))
        if (second.placements, second.cost) != (result.placements, result.cost):
            verdict = "NO: another plan the second time"
        goals: list[tuple[str, bool]] = []
        if self.goal_seconds:
            goals.append((f"{self.goal_seconds:g} s", took <= self.goal_seconds))
        if self.goal_gigabytes:
            goals.append((f"{self.goal_gigabytes:g} GB", peak * 2**20 <= self.goal_gigabytes * 1e9))
        return [
            Row(
                part=self.part,
                case=str(self.size),
                method=result.method,
                load=self.size.load,
                placed=len(result.placements),
                left=len(result.unplaced),
                fewest=fewest_left(result),
                cpu_seconds=took,
                again_seconds=statistics.median(again),
                goal=", ".join(goal for goal, _ in goals),
                reached=all(reached for _, reached in goals) if goals else None,
                peak_mib=peak,
                solves=result.solves,
                cost=result.cost,
                gap=_gap(result),
                certified=getattr(result, "certified", None),
                safe=verdict,
                scarcest=instance.scarcest,
                asked=instance.asked,
                pressure=instance.pressure,
            )
        ]


class NetworkJob(msgspec.Struct, tag="network"):
    """A round in which a network decides about all pods; gangs: some of these in gangs."""

    size: Size
    repeat: int
    gangs: bool = False

    def run(self) -> list[Row]:
        """One row."""
        instance = make(self.size)
        snapshot = networks.under_network(instance.snapshot, gangs=self.gangs)
        seconds = []
        for _ in range(self.repeat):
            cold = _cold(snapshot)
            before = time.process_time()
            result = networks.plan(cold)
            seconds.append(time.process_time() - before)
        whole = Checker(snapshot, instance.running).check(result)
        return [
            Row(
                part="networks",
                case=f"{self.size}{', gangs' if self.gangs else ''}",
                method="network",
                load=self.size.load,
                placed=len(result.placements),
                left=len(result.unplaced),
                cpu_seconds=statistics.median(seconds),
                peak_mib=used([os.getpid()]).peak_mib,
                cost=result.cost,
                gap=_gap(result),
                certified=result.certified,
                safe="yes" if not whole.broken else str(whole),
                note="; ".join(sorted({each.sentence for each in result.contradictions})),
            )
        ]


class DrawnJob(msgspec.Struct, tag="drawn"):
    """The same round without a network, and with each of those that policies draw."""

    size: Size
    repeat: int

    def run(self) -> list[Row]:
        """A row for each, with how many times the CPU time of the round without one it takes."""
        instance = make(self.size)
        snapshot = networks.under_network(instance.snapshot, gangs=False)
        rows, alone = list[Row](), 0.0
        for drawn in ("", *networks.DRAWN):
            policies, seconds = {networks.POLICY.name: networks.drawing(drawn)}, []
            for _ in range(self.repeat):
                cold = _cold(snapshot)
                before = time.process_time()
                result = run_round(cold, policies)
                seconds.append(time.process_time() - before)
            took = statistics.median(seconds)
            alone = alone or took
            rows.append(
                Row(
                    part="networks",
                    case=str(self.size),
                    method=drawn or "without a network",
                    load=self.size.load,
                    placed=len(result.placements),
                    left=len(result.unplaced),
                    cpu_seconds=took,
                    cost=result.cost,
                    gap=_gap(result),
                    certified=result.certified,
                    safe=str(Checker(snapshot, instance.running).check(result)),
                    note=f"{took / alone:.2f} times the time without" if drawn else "",
                )
            )
        return rows


class WarmJob(msgspec.Struct, tag="warm"):
    """Batches of pods through the worker's own door, its state kept between them."""

    size: Size
    batches: int

    def run(self) -> list[Row]:
        """One row; the engine compares it with that of another number of nodes."""
        instance = make(self.size)
        batches = warm.measure(instance, self.batches)
        settled = batches[len(batches) // 3 :]
        return [
            Row(
                part="growth",
                case=str(self.size),
                method=f"median of batches {len(batches) - len(settled) + 1} to {len(batches)}",
                load=self.size.load,
                placed=sum(batch.placed for batch in settled),
                left=sum(batch.left for batch in settled),
                cpu_seconds=statistics.median(batch.cpu_seconds for batch in settled),
                peak_mib=used([os.getpid()]).peak_mib,
                solves=max(batch.solves for batch in settled),
                safe=warm.verdict(instance, batches),
                note=f"first batch {batches[0].cpu_seconds:.3f} s",
            )
        ]


class QualityJob(msgspec.Struct, tag="quality"):
    """Small instances of one load."""

    load: float
    instances: int
    cpsat_seconds: float
    workers: int

    def run(self) -> list[Row]:
        """A row for each method."""
        return quality.compare(self.load, self.instances, self.cpsat_seconds, self.workers)


class OpenbJob(msgspec.Struct, tag="openb"):
    """The production trace, all at once (``arrivals`` 0) or in rounds of so many arrivals."""

    folder: str
    pods: str
    arrivals: int

    def run(self) -> list[Row]:
        """A row for each method."""
        return openb_rounds.compare(self.folder, self.pods, self.arrivals)


Job = DrawnJob | SizeJob | NetworkJob | WarmJob | QualityJob | OpenbJob


def _cold(snapshot: Snapshot) -> Snapshot:
    """The same snapshot with nothing looked up in it yet."""
    pod_index = PodIndex.of(
        ((node, kind) for kind, node, count in snapshot.pod_index.counts() for _ in range(count)),
        snapshot.pod_index.namespaces,
    )
    return replace(snapshot, table=NodeTable.of(snapshot.table.nodes), pod_index=pod_index)


def _gap(result: Any) -> float | None:
    bound = getattr(result, "lower_bound", None)
    return None if bound is None or not result.cost else (result.cost - bound) / result.cost


def main() -> None:
    """Reads a job from standard input."""
    gc.set_threshold(100_000, 50, 100)
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    run: Callable[[], list[Row]] = job.run
    sys.stdout.buffer.write(msgspec.json.encode(run()))


if __name__ == "__main__":
    main()
