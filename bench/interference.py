"""How much longer jobs take for their neighbours and machines, where the true slowdowns are known.

    python bench/interference.py
    python bench/interference.py --nodes 40 --load 0.8 -o json

No cluster takes part. Jobs of four kinds come to nodes of two kinds of machines, in batches; each round is planned by
`flowcore.planning.round` and carried out at once. A job's true slowdown on its node is

    slowdown of its kind on the machine * product over its neighbours of (1 + what one such neighbour adds)

so it grows faster with the neighbours than the sum of penalties that the policy states. A job is done once it has run
for its own time, at the speed that its neighbours leave it from round to round. All methods get the same jobs.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import click
import msgspec
from harness.conditions import conditions
from harness.tables import console, print_conditions
from rich.table import Table

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.cluster.learning import Run, RunHistory, with_estimates
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.resources import CPU, MEMORY, PODS
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.model.workload_kinds import NORMAL_SPEED, Interference, Machines, WorkloadKind
from flowcore.planning.round import RoundResult, run_one_by_one, run_round

GI = 2**30
#: Seconds between two rounds, and a job's own time on average.
EVERY, MEAN_RUN = 30.0, 900.0
#: A job is done when less of its own time is left.
DONE = 1e-9
#: What a node offers, and what a job asks for: cpu (milli), memory (GiB).
NODE, JOB = (8_000, 32), (1_000, 4)
#: Kinds as CoCo names them, with their part of the jobs.
KINDS: Mapping[str, float] = {"turtle": 0.3, "sheep": 0.3, "rabbit": 0.25, "devil": 0.15}
#: What one neighbour (second) adds to the slowdown of a job (first).
ADDED: Mapping[tuple[str, str], float] = {
    ("sheep", "rabbit"): 0.02, ("sheep", "devil"): 0.10,
    ("rabbit", "sheep"): 0.02, ("rabbit", "rabbit"): 0.08, ("rabbit", "devil"): 0.45,
    ("devil", "rabbit"): 0.05, ("devil", "devil"): 0.15,
}  # fmt: skip
#: Slowdown of a kind on the older machines; 1 on the newer ones.
OLD: Mapping[str, float] = {"turtle": 1.02, "sheep": 1.15, "rabbit": 1.5, "devil": 1.1}
MACHINE = "node.kubernetes.io/instance-type"


@dataclass(slots=True)
class Job:
    """A job; ``left`` is what remains of its own time, and ``ran`` how long it runs already, since ``start``.

    Jobs of one work differ little in their own times.
    """

    name: str
    kind: str
    work: str
    own: float
    left: float
    start: float = 0.0
    ran: float = 0.0
    node: str = ""

    def run(self, machine: str) -> Run:
        """As a history sees it."""
        kind, end = list(KINDS).index(self.kind), 0.0 if self.left > DONE else self.start + self.ran
        return Run(self.name, self.node, kind, machine, self.work, self.start, end, self.left <= DONE)


@dataclass(frozen=True, slots=True)
class Row:
    """One run.

    Attributes:
        jobs_come: all at once, or over time; then jobs count that are done in the second half of the rounds.
        mean, p99: of the slowdowns: over time, of how long the jobs that are done ran, over their own time.
        waited: mean seconds until a job had a node.
    """

    jobs_come: str
    method: str
    load: float
    jobs: int
    mean: float
    p99: float
    waited: float
    milliseconds: float


@dataclass(slots=True)
class Cluster:
    """Nodes of two kinds of machines, and what runs on them."""

    machines: Mapping[str, str]
    running: list[Job] = field(default_factory=list)
    waiting: list[Job] = field(default_factory=list)
    waited: float = 0.0
    done: list[Job] = field(default_factory=list)

    def snapshot(self, now: float) -> Snapshot:
        """As a round sees it."""
        allocatable = ((CPU, NODE[0]), (MEMORY, NODE[1] * GI), (PODS, 110))
        nodes = (Node(name, allocatable=allocatable, labels=((MACHINE, kind),)) for name, kind in self.machines.items())
        requests = ((CPU, JOB[0]), (MEMORY, JOB[1] * GI))
        pending = tuple(
            PendingPod(
                f"jobs/{job.name}", job.name, PodClass(requests=requests), BUILT_IN.name, now, signature(job.kind)
            )
            for job in self.waiting
        )
        return build_snapshot(
            generation=1,
            now=now,
            table=NodeTable.of(nodes),
            running=((job.node, requests, ()) for job in self.running),
            pending=pending,
            pod_index=PodIndex.of((job.node, signature(job.kind)) for job in self.running),
        )

    def carry_out(self, plan: RoundResult, now: float) -> None:
        """The placements run; what is not placed waits on."""
        where = {placement.pod.uid: placement.node for placement in plan.placements}
        for job in self.waiting:
            job.node, job.start = where.get(job.name, ""), now
        self.running += [job for job in self.waiting if job.node]
        self.waiting = [job for job in self.waiting if not job.node]

    def true_slowdowns(self) -> list[float]:
        """Of the running jobs, as their nodes are now."""
        beside: dict[str, Counter[str]] = {}
        for job in self.running:
            beside.setdefault(job.node, Counter())[job.kind] += 1
        return [self._slowdown(job, beside[job.node]) for job in self.running]

    def pass_time(self, seconds: float) -> None:
        """Everybody runs at the true speed; who is done leaves."""
        for job, slowdown in zip(self.running, self.true_slowdowns(), strict=True):
            used = min(seconds, job.left * slowdown)
            job.ran, job.left = job.ran + used, job.left - used / slowdown
        self.done += [job for job in self.running if job.left <= DONE]
        self.running = [job for job in self.running if job.left > DONE]
        self.waited += seconds * len(self.waiting)

    def _slowdown(self, job: Job, on_node: Mapping[str, int]) -> float:
        found = OLD[job.kind] if self.machines[job.node] == "old" else 1.0
        for kind, count in on_node.items():
            found *= (1 + ADDED.get((job.kind, kind), 0.0)) ** (count - (kind == job.kind))
        return found


def signature(kind: str) -> PodSignature:
    """Of a job of the kind."""
    return PodSignature("jobs", (("kind", kind),))


def stated_costs() -> CostPolicy:
    """They say of neighbours and machines what is true of one neighbour."""
    kinds = tuple(WorkloadKind(name, LabelSelector((Requirement("kind", "In", (name,)),))) for name in KINDS)
    penalties = tuple(tuple(round(1000 * ADDED.get((one, other), 0.0)) for other in KINDS) for one in KINDS)
    slowdowns = [(kind, "old", round(NORMAL_SPEED * slowdown)) for kind, slowdown in OLD.items()]
    slowdowns += [(kind, "new", NORMAL_SPEED) for kind in KINDS]
    return CostPolicy(kinds=kinds, interference=Interference(penalties), machines=Machines(MACHINE, tuple(slowdowns)))


STATED = stated_costs()
NOTHING_STATED = CostPolicy(
    kinds=STATED.kinds, interference=Interference(((0,) * len(KINDS),) * len(KINDS)), machines=Machines(MACHINE, ())
)
Plan = Callable[[Snapshot], RoundResult]
METHODS: Mapping[str, Plan] = {
    "one by one, CPUMemory": run_one_by_one,
    "rounds, CPUMemory": run_round,
    "one by one, stated": lambda snapshot: run_one_by_one(
        snapshot, {BUILT_IN.name: Policy(BUILT_IN.name, cost=STATED)}
    ),
    "rounds, stated": lambda snapshot: run_round(snapshot, {BUILT_IN.name: Policy(BUILT_IN.name, cost=STATED)}),
}
#: Begins with nothing, and learns from jobs that are done.
LEARNT = "rounds, learnt"


def empty_cluster(nodes: int) -> Cluster:
    """Every second node is a new machine."""
    return Cluster({f"n{at:03}": "new" if at % 2 else "old" for at in range(nodes)})


def jobs_for(draw: random.Random, first: int, count: int) -> list[Job]:
    """New jobs, numbered from ``first``: some works of up to 8 jobs each."""
    jobs: list[Job] = []
    while len(jobs) < count:
        (kind,) = draw.choices(list(KINDS), weights=list(KINDS.values()))
        mean = draw.expovariate(1 / MEAN_RUN) + EVERY
        work, begun = f"w{first + len(jobs)}", len(jobs)
        for at in range(begun, min(begun + draw.randint(1, 8), count)):
            own = mean * draw.uniform(0.95, 1.05)
            jobs.append(Job(f"j{first + at}", kind, work, own, own))
    return jobs


def run_backlog(method: str, load: float, nodes: int, seed: int) -> Row:
    """Jobs that come to empty nodes all at once; their slowdowns as they begin."""
    cluster, count = empty_cluster(nodes), round(load * nodes * NODE[0] / JOB[0])
    cluster.waiting = jobs_for(random.Random(seed), 0, count)
    began = time.process_time()
    cluster.carry_out(METHODS[method](cluster.snapshot(0.0)), 0.0)
    milliseconds = 1000 * (time.process_time() - began)
    found = cluster.true_slowdowns()
    return Row("at once", method, load, count, statistics.mean(found), percentile(found), 0.0, milliseconds)


def percentile(slowdowns: Sequence[float]) -> float:
    """The 99th."""
    return statistics.quantiles(slowdowns, n=100)[98]


def run(method: str, load: float, nodes: int, rounds: int, seed: int) -> Row:
    """One run.

    Args:
        load: of all cpus that jobs would hold if none was slowed down.
    """
    draw, cluster = random.Random(seed), empty_cluster(nodes)
    rate = load * nodes * (NODE[0] / JOB[0]) * EVERY / MEAN_RUN
    history, number, due = RunHistory(len(KINDS)), 0, 0.0
    began = time.process_time()
    for turn in range(rounds):
        due += rate * draw.choice((0.25, 0.5, 1.0, 2.25))  # jobs come in batches of very different sizes
        new = jobs_for(draw, number, int(due))
        number, due = number + len(new), due - len(new)
        cluster.waiting += new
        if cluster.waiting:
            snapshot = cluster.snapshot(turn * EVERY)
            if method == LEARNT:
                cost = with_estimates(NOTHING_STATED, history.estimates())
                plan = run_round(snapshot, {BUILT_IN.name: Policy(BUILT_IN.name, cost=cost)})
            else:
                plan = METHODS[method](snapshot)
            cluster.carry_out(plan, turn * EVERY)
        cluster.pass_time(EVERY)
        if method == LEARNT:
            jobs = (*cluster.running, *cluster.done)
            history.update([job.run(cluster.machines[job.node]) for job in jobs], (turn + 1) * EVERY)
    milliseconds = 1000 * (time.process_time() - began) / rounds
    half = rounds * EVERY / 2
    done = [job.ran / job.own for job in cluster.done if job.start + job.ran > half]
    waited = cluster.waited / max(number, 1)
    return Row("over time", method, load, number, statistics.mean(done), percentile(done), waited, milliseconds)


def print_table(rows: Sequence[Row]) -> None:
    """All rows."""
    table = Table(title="Slowdowns of jobs, where the truth is known")
    for column in ("jobs come", "method", "load", "jobs", "mean slowdown", "above 1", "p99", "waited, s", "ms a round"):
        table.add_column(column, justify="left" if column in ("jobs come", "method") else "right")
    for row in rows:
        figures = (
            f"{row.mean:.3f}",
            f"{row.mean - 1:.3f}",
            f"{row.p99:.2f}",
            f"{row.waited:.0f}",
            f"{row.milliseconds:.0f}",
        )
        table.add_row(row.jobs_come, row.method, f"{row.load:g}", str(row.jobs), *figures)
    console.print(table)


@click.command()
@click.option("--load", "loads", type=float, multiple=True, default=(0.4, 0.7), show_default=True)
@click.option("--nodes", default=20, show_default=True)
@click.option("--rounds", default=400, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(loads: tuple[float, ...], nodes: int, rounds: int, seed: int, output: str) -> None:
    """Slowdowns of jobs under each method."""
    told = conditions()
    rows = [run_backlog(method, load, nodes, seed) for load in loads for method in METHODS]
    rows += [run(method, load, nodes, rounds, seed) for load in loads for method in (*METHODS, LEARNT)]
    if output == "json":
        click.echo(msgspec.json.encode({"conditions": told, "rows": [asdict(row) for row in rows]}))
    else:
        print_table(rows)
        print_conditions(told)


if __name__ == "__main__":
    main()
