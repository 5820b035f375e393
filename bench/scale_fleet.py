"""A round over the clusters of a fleet as one min-cost flow, beside the ways in which fleets divide pods today.

    python bench/scale_fleet.py
    python bench/scale_fleet.py --nodes 100 --pods 800       # does it work?

One generated cluster is cut into clusters of different sizes. Each class of pods has its data in one of them, and each
cluster has a price. docs/scale.md writes the flow down. After each division every cluster plans what it was given, and
pods that found no room are divided again, at most so many times. The others: `first` gives each job, up to 50 pods of
a class, to a random cluster that says that it has room for all of it (whoever admits first), and `by room` divides a
class in proportion to how many more of its pods each cluster could take. Prices are of a unit, a millionth of what the
fleet has of the resource that a pod takes the largest share of.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import click
import numpy as np
from harness.conditions import conditions
from harness.instances import Size, make
from harness.parts import Part
from harness.rechecks import Checker
from harness.tables import console, print_conditions
from numpy.typing import NDArray
from ortools.graph.python import min_cost_flow
from rich.table import Table

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.model.pods import PodClass

Int64s = NDArray[np.int64]
#: A class that needs the whole of some resource of the fleet has so many units.
_WHOLE = 1_000_000
#: Slots of a cluster's room, each dearer than the one before.
_SLOTS = 10
_JOB = 50
#: Of a unit whose data is in another cluster; clusters' own prices are below 20.
_MOVE = 60


@dataclass(frozen=True)
class Prices:
    """Of one unit: ``move`` int64[K, J] for data that is elsewhere, ``cluster`` int64[J], ``left`` for no place."""

    move: Int64s
    cluster: Int64s
    left: int = 1_000


@dataclass(frozen=True)
class FleetDemand:
    """One division: pods by class, and what clusters say.

    Attributes:
        classes: of the pods.
        pods: those of each class.
        units: int64[K] of one pod.
        fits: int64[K, J] how many more pods of a class each cluster could take, if only these came.
        room: int64[J] units that each cluster has in its scarcest resource.
    """

    classes: Sequence[PodClass]
    pods: Sequence[Sequence[PendingPod]]
    units: Int64s
    fits: Int64s
    room: Int64s


#: int64[K, J]: how many pods of each class go to each cluster.
Divide = Callable[[FleetDemand, Prices, random.Random], Int64s]


def by_flow(asked: FleetDemand, prices: Prices, _draw: random.Random) -> Int64s:
    """Least cost: units flow from classes over clusters and their slots to the sink. Fractions of a pod stay back."""
    classes, clusters = asked.fits.shape
    supply = asked.units * np.array([len(pods) for pods in asked.pods])
    k, j = (each.ravel() for each in np.indices((classes, clusters)))
    slot = np.tile(np.arange(_SLOTS), clusters)
    sink = classes + clusters
    width = asked.room // _SLOTS
    tails = np.concatenate((k, np.arange(classes), np.repeat(np.arange(clusters) + classes, _SLOTS)))
    heads = np.concatenate((j + classes, np.full(classes, sink), np.full(clusters * _SLOTS, sink)))
    room = np.concatenate(((asked.fits * asked.units[:, np.newaxis]).ravel(), supply, np.repeat(width, _SLOTS)))
    costs = np.concatenate(
        ((prices.move + prices.cluster).ravel(), np.full(classes, prices.left), 2 * slot + 1)
    )  # fmt: skip
    solver = min_cost_flow.SimpleMinCostFlow()
    arcs = solver.add_arcs_with_capacity_and_unit_cost(tails, heads, room, costs)
    solver.set_nodes_supplies(
        np.arange(sink + 1), np.concatenate((supply, np.zeros(clusters, dtype=np.int64), [-supply.sum()]))
    )
    if solver.solve() != solver.OPTIMAL:
        raise click.ClickException("the flow has no solution")
    flows = np.asarray(solver.flows(arcs))[: classes * clusters].reshape(classes, clusters)
    return flows // asked.units[:, np.newaxis]


def first(asked: FleetDemand, _prices: Prices, draw: random.Random) -> Int64s:
    """Each job to a random cluster that has room for it, by what clusters said and were given since."""
    found = np.zeros_like(asked.fits)
    room = asked.room.copy()
    jobs = [(at, size) for at, pods in enumerate(asked.pods) for size in _jobs(len(pods))]
    for at, size in draw.sample(jobs, len(jobs)):
        units = size * int(asked.units[at])
        able = [j for j in range(len(room)) if asked.fits[at, j] - found[at, j] >= size and room[j] >= units]
        if able:
            j = draw.choice(able)
            found[at, j] += size
            room[j] -= units
    return found


def _jobs(pods: int) -> list[int]:
    return [_JOB] * (pods // _JOB) + ([pods % _JOB] if pods % _JOB else [])


def by_room(asked: FleetDemand, _prices: Prices, _draw: random.Random) -> Int64s:
    """Each class in proportion to how many of its pods each cluster could take."""
    found = np.zeros_like(asked.fits)
    for at, pods in enumerate(asked.pods):
        total = int(asked.fits[at].sum())
        if total:
            found[at] = np.minimum(asked.fits[at], len(pods) * asked.fits[at] // total)
            for j in np.argsort(-asked.fits[at])[: max(0, min(len(pods), total) - int(found[at].sum()))]:
                found[at, j] += found[at, j] < asked.fits[at, j]
    return found


def _ask(clusters: Sequence[Part], pods: Sequence[PendingPod]) -> FleetDemand:
    by_class: defaultdict[PodClass, list[PendingPod]] = defaultdict(list)
    for pod in pods:
        by_class[pod.pod_class].append(pod)
    classes = sorted(by_class, key=lambda each: by_class[each][0].key)
    checkers = [Checker(part.snapshot()) for part in clusters]
    fits = np.zeros((len(classes), len(clusters)), dtype=np.int64)
    snapshots = [part.snapshot() for part in clusters]
    names = sorted({name for each in snapshots for name in each.resources})
    total, free = np.zeros(len(names)), np.zeros((len(clusters), len(names)))
    for j, each in enumerate(snapshots):
        columns = [names.index(name) for name in each.resources]
        total[columns] += each.allocatable.sum(axis=0)
        free[j, columns] = np.maximum(each.allocatable - each.used, 0).sum(axis=0)
    units = np.zeros(len(classes), dtype=np.int64)
    for at, pod_class in enumerate(classes):
        for j, checker in enumerate(checkers):
            wanted, room = checker.wanted(pod_class), np.maximum(checker.free(), 0)
            most = (room[:, wanted > 0] // wanted[wanted > 0]).min(axis=1)
            fits[at, j] = int(most[checker.allowed(pod_class)].sum())
        shares = [amount / total[names.index(name)] for name, amount in (*pod_class.requests, ("pods", 1))]
        units[at] = max(1, int(np.ceil(max(shares) * _WHOLE)))
    # A resource that few pods ask for says nothing of the room for the others: its own count (``fits``) does.
    base = [names.index(name) for name in ("cpu", "memory")]
    room = (free[:, base] / total[base]).min(axis=1) * _WHOLE
    return FleetDemand(classes, [by_class[each] for each in classes], units, fits, room.astype(np.int64))


class Fleet:
    """Clusters, and pods that are divided among them.

    Attributes:
        left: pods without a place.
        units, paid, away: of all placed pods: units, their price, and those whose data is elsewhere.
        slowest: CPU seconds of the longest division.
    """

    def __init__(
        self, parts: Sequence[Part], homes: Mapping[PodClass, int], prices: Int64s, pods: Sequence[PendingPod]
    ) -> None:
        """``homes``: the cluster with the data of a class; -1: it needs none. ``prices``: int64[J] of clusters."""
        self._parts, self._homes, self._prices = parts, homes, prices
        self.left = list(pods)
        self.units = self.paid = self.away = 0
        self.slowest = 0.0

    def divide(self, divide: Divide, draw: random.Random) -> None:
        """Divides the pods that are left, and has each cluster plan its share."""
        if not self.left:
            return
        asked = _ask(self._parts, self.left)
        homes = np.array([self._homes[each] for each in asked.classes])[:, np.newaxis]
        move = np.where((homes == np.arange(len(self._parts))) | (homes < 0), 0, _MOVE)
        began = time.process_time()
        shares = divide(asked, Prices(move, self._prices), draw)
        self.slowest = max(self.slowest, time.process_time() - began)
        ends = shares.cumsum(axis=1)
        self.left = [pod for k, pods in enumerate(asked.pods) for pod in pods[int(ends[k, -1]) :]]
        for j, part in enumerate(self._parts):
            begins = ends[:, j] - shares[:, j]
            given = [(k, pod) for k, pods in enumerate(asked.pods) for pod in pods[begins[k] : ends[k, j]]]
            back, _ = part.plan([pod for _, pod in given])
            missing = {pod.key for pod in back}
            for k, pod in given:
                if pod.key not in missing:
                    units = int(asked.units[k])
                    self.units += units
                    self.paid += units * int(move[k, j] + self._prices[j])
                    self.away += units * bool(move[k, j])
            self.left += back


@click.command()
@click.option("--nodes", default=600, show_default=True, type=click.IntRange(min=50))
@click.option("--pods", default=6_000, show_default=True, type=click.IntRange(min=1))
@click.option("--classes", default=100, show_default=True, type=click.IntRange(min=1))
@click.option("--clusters", "count", default=6, show_default=True, type=click.IntRange(min=2))
@click.option("--rounds", default=4, show_default=True, type=click.IntRange(min=1), help="Divisions at most.")
def main(nodes: int, pods: int, classes: int, count: int, rounds: int) -> None:
    """Prints a table of ways to divide, at three loads."""
    told = conditions()
    table = Table(title=f"{count} clusters with {nodes} nodes, {pods:,} pods of {classes} classes")
    columns = ("load", "way", "left after 1", f"after {rounds}", "price of a unit", "away from data", "divide ms")
    for name in columns:
        table.add_column(name, justify="left" if name == "way" else "right")
    for load in (0.7, 0.9, 1.0):
        instance = make(Size(nodes, pods, classes, load=load, spread=False))
        waiting = list(instance.snapshot.pending)
        together, _ = Part(instance.snapshot.table.nodes).plan(waiting)
        table.add_row(str(load), "one cluster", f"{len(together):,}")
        draw = random.Random(7)
        ranks = [draw.random() ** 2 + 0.1 for _ in range(count)]
        at = draw.choices(range(count), ranks, k=nodes)
        cluster_prices = np.array([draw.randrange(20) for _ in range(count)])
        homes = {each.pod_class: draw.randrange(count) if draw.random() < 0.6 else -1 for each in instance.workloads}
        for way, divide in (("flow", by_flow), ("by room", by_room), ("first", first)):
            nodes_of = [
                [node for node, mine in zip(instance.snapshot.table.nodes, at, strict=True) if mine == j]
                for j in range(count)
            ]
            fleet = Fleet([Part(each) for each in nodes_of], homes, cluster_prices, waiting)
            after_one = 0
            for number in range(rounds):
                fleet.divide(divide, draw)
                after_one = len(fleet.left) if number == 0 else after_one
            units = max(1, fleet.units)
            table.add_row(
                "", way, f"{after_one:,}", f"{len(fleet.left):,}", f"{fleet.paid / units:.1f}",
                f"{fleet.away / units:.0%}", f"{fleet.slowest * 1000:.0f}",
            )  # fmt: skip
    console.print(table)
    print_conditions(told)


if __name__ == "__main__":
    main()
