"""What it is worth that rules of pods about their own app are in the flow and in the lower bound.

    python bench/rules_in_the_flow.py
    python bench/rules_in_the_flow.py --nodes 2500 --pods 5000 --running 20000 -o json

No cluster takes part. Instances are those of harness/instances.py; every app gets one rule about its own pods. Each row
is the same instance twice, with the same budget of CPU time: first with rules outside the network, as the engine was
before decision 49 (such pods stay where fill put them, and the bound does not know rules; slots are those of now), then
with rules in the network. At a load above 1 many pods stay out: then the row says what a flow after the shares is
worth, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest.mock import patch

import click
import msgspec
import numpy as np
from harness.budget import round_within
from harness.conditions import conditions
from harness.instances import Size, make
from harness.ruled import RULES, selector_of
from harness.tables import console, print_conditions
from rich.table import Table

from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.costs.model import Float64s
from flowcore.model.inter_pod_constraints import InterPodConstraints
from flowcore.model.selectors import LabelSelector
from flowcore.planning.problem import bounds
from flowcore.planning.problem.objective import unplaced_counts
from flowcore.planning.round.portfolio import Portfolio
from flowcore.rules.topology.constraints import TopologyConstraints


@dataclass(frozen=True, slots=True)
class Row:
    """One rule on one instance: what stays out, cost, gap and CPU seconds, first outside the network, then in it."""

    rule: str
    sizes: str
    load: float
    left: tuple[int, int]
    cost: tuple[int, int]
    gap: tuple[float, float]
    seconds: tuple[float, float]


@contextmanager
def outside_the_network() -> Iterator[None]:
    """Rules keep pods out of the flow and the bound, and if many pods stay out there is no flow."""
    solve_by_flow = Portfolio._solve_by_flow  # noqa: SLF001 - there is no other way to have the engine of before

    def unless_scarce(portfolio: Portfolio, demands: Bools) -> Iterator[None]:
        unplaced = unplaced_counts(portfolio.best.commits, portfolio.best.demands)
        every = zip(unplaced, portfolio.best.demands, demands, strict=True)
        waiting = [(count, each.count) for count, each, mine in every if mine]
        if sum(count for count, _ in waiting) * 50 <= sum(pods for _, pods in waiting):
            yield from solve_by_flow(portfolio, demands)

    def cheapest(cost: Float64s, fit_counts: Int64s, prices: Int64s, _capacities: object) -> tuple[float, int]:
        least = np.where(fit_counts > 0, cost, np.inf).min(initial=np.inf)
        return float(np.minimum(prices, least).sum()), 0

    unruled = property(lambda constraints: not constraints.sequential)
    with (
        patch.object(TopologyConstraints, "fits_flow", unruled),
        patch.object(Portfolio, "_solve_by_flow", unless_scarce),
        patch.object(bounds, "least_cost", cheapest),
    ):
        yield


def under_rule(snapshot: Snapshot, rule: Callable[[LabelSelector], InterPodConstraints], *, one_size: bool) -> Snapshot:
    """The same pods, each with the rule about the pods of its app."""
    pending = []
    for pod in snapshot.pending:
        pod_class = pod.pod_class
        if one_size:
            pod_class = msgspec.structs.replace(pod_class, requests=(("cpu", 2000), ("memory", 4 * 2**30)))
        signature = msgspec.structs.replace(pod.signature, constraints=rule(selector_of(pod)))
        pending.append(replace(pod, pod_class=pod_class, signature=signature))
    return replace(snapshot, pending=tuple(pending))


def measure(rule: str, size: Size, *, one_size: bool, budget: float) -> Row:
    """The instance with rules outside the network and in it."""
    snapshot = under_rule(make(size).snapshot, RULES[rule], one_size=one_size)

    def planned() -> tuple[int, int, float, float]:
        before = time.process_time()
        result = round_within(snapshot, budget)
        return len(result.unplaced), result.cost, result.gap, time.process_time() - before

    with outside_the_network():
        before = planned()
    left, cost, gap, seconds = zip(before, planned(), strict=True)
    return Row(rule, "one" if one_size else "many", size.load, left, cost, gap, seconds)


@click.command()
@click.option("--nodes", default=600, show_default=True)
@click.option("--pods", default=2000, show_default=True, help="That wait.")
@click.option("--running", default=2000, show_default=True)
@click.option("--classes", default=50, show_default=True)
@click.option("--budget", default=1.5, show_default=True, help="CPU seconds of a round.")
@click.option("--seed", default=1, show_default=True)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(nodes: int, pods: int, running: int, classes: int, budget: float, seed: int, output: str) -> None:
    """Measures batches of pods whose rules are capacities."""
    rows = []
    for rule in RULES:
        for one_size, load in ((True, 0.7), (False, 0.7), (False, 1.3)):
            size = Size(nodes, pods, classes, running, load=load, seed=seed, spread=False)
            rows.append(measure(rule, size, one_size=one_size, budget=budget))
    if output == "json":
        click.echo(msgspec.json.encode({"conditions": conditions(), "rows": rows}))
        return
    columns = "rule", "sizes", "load", "left out", "cost", "gap", "CPU s"
    table = Table(*columns, title=f"{nodes:,} nodes, {pods:,} pods; rules outside the network, then in it")
    for row in rows:
        cells = [f"{one:{form}}\n{other:{form}}" for (one, other), form in (
            (row.left, ","), (row.cost, ","), (row.gap, ".3%"), (row.seconds, ".2f")
        )]  # fmt: skip
        table.add_row(row.rule, row.sizes, f"{row.load}", *cells)
    console.print(table)
    print_conditions(conditions())


if __name__ == "__main__":
    main()
