"""Who goes first among pods of equal priority: by the size of pods, by pods, and in kube-scheduler's order.

    python bench/waiting_order.py                      # drawn arrivals
    python bench/waiting_order.py --openb DATA_DIR     # the lists of the openb trace too
    python bench/waiting_order.py --openb DATA_DIR --only openb --lists default,multigpu50

No cluster takes part. All rows of a case have the same nodes and pods.

`drawn`: pods come at random and ask for more than there is. `one by one`: pods of 1/64 to one whole node on 10 nodes
run for ten minutes in the mean, and every 30 seconds a placer decides: room comes bit by bit. `waves`: pods of an
eighth to one whole node on two nodes run for a minute and end together, and then a placer decides: room comes at once.
What is counted: the pods that came in the second half of the time.
`openb`: all pods of a list wait, all equally long (`at once`), or come in its order and evenly within a minute, 200 a
round (`in rounds`); nothing ends.

`kube-scheduler`: its queue order, filters and scores (harness/waiting_order.py), not the program. `by size`: the
default policy. `by size, slow`, `quick`: the same with a tenth, ten times of its ageing. `by pod`: `per: Pod`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

import click
import msgspec
import numpy as np
from harness import options, waiting_order
from harness.conditions import conditions
from harness.openb_rounds import load
from harness.rechecks import Placed
from harness.tables import console, print_conditions
from harness.waiting_order import KubeSchedulerOrder, Placer, Waits, rounds_by
from openb import GPU, LISTS, pods_file
from rich.table import Table

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.cost_policy import PricedBy, UnscheduledPrice
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.planning.round.round import DEFAULT_STEPS


def _policy(name: str, price: UnscheduledPrice) -> Policy:
    return msgspec.structs.replace(BUILT_IN, name=name, unscheduled=price)


_PRICE = UnscheduledPrice()
POLICIES = {
    "by size": _policy("by-size", _PRICE),
    "by size, slow": _policy("slow", msgspec.structs.replace(_PRICE, base=10 * _PRICE.base)),
    "by size, quick": _policy(
        "quick", msgspec.structs.replace(_PRICE, per_waiting_second=10 * _PRICE.per_waiting_second)
    ),
    "by pod": _policy("by-pod", UnscheduledPrice(per=PricedBy.POD)),
}
PLACERS: Mapping[str, Callable[[int], Placer]] = {
    "kube-scheduler": lambda _: KubeSchedulerOrder(),
    **{name: lambda steps, policy=policy: rounds_by(policy, steps) for name, policy in POLICIES.items()},
}


@dataclass(frozen=True, slots=True)
class Arriving:
    """How drawn pods come.

    Attributes:
        sizes: shares of a node, with the part of the room that pods of each ask for.
        runs, every: seconds that a pod runs in the mean, and between two decisions.
        runs_for: seconds that each pod runs; 0: an exponential time.
        steps: of a round at most.
    """

    sizes: Mapping[float, float]
    nodes: int
    runs: float
    every: float
    runs_for: float
    steps: int


ARRIVING = {
    "one by one": Arriving({1 / 64: 0.2, 1 / 16: 0.3, 1 / 4: 0.25, 1 / 2: 0.15, 1.0: 0.1}, 10, 600.0, 30.0, 0.0, 20),
    "waves": Arriving({1 / 8: 0.5, 1 / 4: 0.3, 1.0: 0.2}, 2, 60.0, 60.0, 55.0, 40),
}
#: Steps of rounds in which 200 pods of openb come.
_STEPS = 20
#: Pods as large as this part of a node are large.
_LARGE = 0.5
_ARRIVALS = 200
_SIXTY = 60.0


@dataclass(frozen=True, slots=True)
class Drawn:
    """A row of drawn arrivals; waits in minutes."""

    arriving: str
    load: float
    seed: int
    placer: str
    placed: int
    used: float
    small_median: float
    small_p95: float
    large_median: float
    large_p95: float
    large_longest: float
    whole_median: float
    whole_p95: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Openb:
    """A row of a list of openb."""

    which: str
    arrival: str
    placer: str
    placed: int
    several: int
    of_several: int
    gpus: int
    gpus_total: int
    cpu: float


def drawn(loads: list[float], seeds: list[int], placers: list[str], hours: float) -> list[Drawn]:
    """Rows of drawn arrivals."""
    rows, until = [], hours * 3600.0
    for (which, how), load_, seed in product(ARRIVING.items(), loads, seeds):
        arrivals = waiting_order.draw(seed, how.nodes, load_, until, how.sizes, how.runs)
        if how.runs_for:
            arrivals = [replace(each, runs_for=how.runs_for) for each in arrivals]
        for name in placers:
            waits = waiting_order.simulate(how.nodes, arrivals, PLACERS[name](how.steps), every=how.every, until=until)
            if waits.overcommitted:
                raise click.ClickException(f"{name} overcommitted a node")
            rows.append(_drawn_row(which, load_, seed, name, waits))
            click.echo(f"{rows[-1]}", err=True)
    return rows


def _drawn_row(which: str, load_: float, seed: int, name: str, waits: Waits) -> Drawn:
    shares, minutes = np.array(waits.shares), np.array(waits.seconds_waited) / _SIXTY

    def part(chosen: np.ndarray, percent: float) -> float:
        return float(np.percentile(minutes[chosen], percent)) if chosen.any() else 0.0

    small, large, whole = shares < _LARGE, shares >= _LARGE, shares >= 1.0
    return Drawn(
        which, load_, seed, name, waits.placed, waits.used,
        part(small, 50), part(small, 95), part(large, 50), part(large, 95), part(large, 100), part(whole, 50),
        part(whole, 95), waits.cpu_seconds,
    )  # fmt: skip


def openb(folder: Path, lists: list[str], placers: list[str], arrivals: list[str]) -> list[Openb]:
    """Rows of the lists of openb."""
    rows = []
    for which in lists:
        if not pods_file(folder, which).exists():
            click.echo(f"{which}: {folder} has no such list", err=True)
            continue
        snapshot = load(folder, which, aged=False)
        for arrival in arrivals:
            for name in placers:
                placed = _in_rounds(snapshot, name) if arrival == "rounds" else PLACERS[name](DEFAULT_STEPS)(snapshot)
                rows.append(_openb_row(snapshot, which, arrival, name, placed))
                click.echo(f"{which}, {arrival}, {name}: {rows[-1]}", err=True)
    return rows


def _in_rounds(snapshot: Snapshot, name: str) -> list[Placed]:
    """Pods come evenly within a minute, and rounds have few steps."""
    placer, state, waiting = PLACERS[name](_STEPS), snapshot, ()
    coming = [
        msgspec.structs.replace(pod, created=1.0 + _SIXTY * place / len(snapshot.pending))
        for place, pod in enumerate(snapshot.pending)
    ]
    found: list[Placed] = []
    for first in range(0, len(coming), _ARRIVALS):
        new = coming[first : first + _ARRIVALS]
        state = replace(state, now=new[-1].created, pending=(*waiting, *new))
        placed = placer(state)
        found += placed
        there = {pod.key for pod, _ in placed}
        waiting = tuple(pod for pod in state.pending if pod.key not in there)
        used, assumed = state.used.copy(), state.non_zero_requested.copy()
        for pod, at in placed:
            used[at] += state.vector((*pod.pod_class.requests, ("pods", 1)))
            assumed[at] += pod.pod_class.non_zero_requests
        state = replace(state, used=used, non_zero_requested=assumed)
    return found


def _openb_row(snapshot: Snapshot, which: str, arrival: str, name: str, placed: list[Placed]) -> Openb:
    gpus, cpu = (snapshot.resources.index(each) for each in (GPU, "cpu"))
    asked = {pod.key: dict(pod.pod_class.requests) for pod in snapshot.pending}
    several = {key for key, amounts in asked.items() if amounts.get(GPU, 0) > 1}
    return Openb(
        which, arrival, name, len(placed), sum(pod.key in several for pod, _ in placed), len(several),
        sum(asked[pod.key].get(GPU, 0) for pod, _ in placed), int(snapshot.allocatable[:, gpus].sum()),
        sum(asked[pod.key].get("cpu", 0) for pod, _ in placed) / float(snapshot.allocatable[:, cpu].sum()),
    )  # fmt: skip


def _print(title: str, rows: list[Drawn] | list[Openb]) -> None:
    if not rows:
        return
    table = Table(title=title)
    for column in asdict(rows[0]):
        table.add_column(column.replace("_", " "))
    for row in rows:
        table.add_row(*(f"{value:.3g}" if isinstance(value, float) else str(value) for value in asdict(row).values()))
    console.print(table)


@click.command()
@click.option("--openb", "folder", type=click.Path(exists=True, file_okay=False, path_type=Path), help="DATA_DIR.")
@click.option("--only", type=click.Choice(["drawn", "openb"]), help="One part.")
@click.option("--lists", default=",".join(LISTS), show_default=True, callback=options.words(LISTS), help="Of openb.")
@click.option("--arrival", "arrivals", default="once,rounds", show_default=True,
              callback=options.words(("once", "rounds")), help="How pods of openb come.")  # fmt: skip
@click.option("--loads", default="1.05,1.3", show_default=True, help="What drawn pods ask for over what there is.")
@click.option("--seeds", default="1,2,3", show_default=True, callback=options.numbers, help="Of drawn arrivals.")
@click.option("--hours", default=2.0, show_default=True, help="How long pods come.")
@click.option("--placers", default="/".join(PLACERS), show_default=True, help="With / between them.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(
    folder: Path | None,
    only: str | None,
    lists: list[str],
    arrivals: list[str],
    loads: str,
    seeds: list[int],
    hours: float,
    placers: str,
    output: str,
) -> None:
    """Compares who goes first among pods of equal priority."""
    told, names = conditions(), placers.split("/")
    rows: dict[str, list[Drawn] | list[Openb]] = {}
    if only != "openb":
        rows["drawn arrivals"] = drawn([float(word) for word in loads.split(",")], seeds, names, hours)
    if folder is not None and only != "drawn":
        rows["openb"] = openb(folder, lists, names, arrivals)
    if output == "json":
        click.echo(
            msgspec.json.encode({"conditions": told, "rows": {k: [asdict(r) for r in v] for k, v in rows.items()}})
        )
        return
    for title, found in rows.items():
        _print(title, found)
    print_conditions(told)


if __name__ == "__main__":
    main()
