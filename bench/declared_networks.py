"""Networks that cost models declare: what they keep that no cost can, and how long they take.

    python bench/declared_networks.py
    python bench/declared_networks.py --nodes 1000 --pods 5000 -o json

No cluster takes part. The first table has the example's model (examples/rack-budget-model) beside CPUMemory, in rounds
and one by one: racks of five nodes, pairs and single pods, three pods allowed in a rack. The truth is counted from the
plan.

The second table has the CPU time of a network alone: four arcs of rising cost to each node and a maximum for each rack
of 40 nodes; then the example's pairs. "gap" is the part of the cost that the network's own lower bound leaves open.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from time import process_time

import click
import msgspec
from harness.conditions import conditions
from harness.tables import console, print_conditions
from rich.table import Table

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.costs import MODELS, CostModel
from flowcore.costs.network_model import Arc, Network, NetworkCostModel, NetworkView
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.policies import Policy
from flowcore.planning.declared_networks.network_pass import SolveNetworks
from flowcore.planning.problem.passes import invert_all
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round import RoundResult, run_one_by_one, run_round

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "rack-budget-model"))
from rack_budget import BUDGET, RackBudget

GI = 2**30


class Ladders(NetworkCostModel):
    """A maximum for each rack, and four arcs of rising cost to each of its nodes."""

    name = "Ladders"

    def network(self, view: NetworkView) -> Network:
        """See the class."""
        arcs = [Arc(pods, "all") for pods in view.pods]
        for rack, nodes in view.by_label("rack").items():
            arcs.append(Arc("all", rack, maximum=40))
            arcs += [Arc(rack, node, cost=50 * step, maximum=1) for node in nodes for step in range(4)]
        return Network.of(arcs)


_MODELS: dict[str, CostModel] = {**MODELS, "RackBudget": RackBudget(), "Ladders": Ladders()}


def policies(model: str) -> dict[str, Policy]:
    """One policy, with this model."""
    return {"p": Policy("p", cost=CostPolicy(model))}


def cluster(nodes: int, rack: int, pods: list[tuple[str, dict[str, str], int]]) -> Snapshot:
    """Nodes in racks of equal size, and pods by name, labels and millicores."""
    table = NodeTable.of(
        Node(
            f"n{at:05}",
            labels=(("rack", f"r{at // rack}"),),
            allocatable=(("cpu", 32_000), ("memory", 128 * GI), ("pods", 110)),
        )
        for at in range(nodes)
    )
    pending = [
        PendingPod(
            f"bench/{name}",
            name,
            PodClass(requests=(("cpu", cpu), ("memory", GI))),
            "p",
            created=float(at % 500),
            signature=PodSignature("bench", tuple(sorted(labels.items()))),
        )
        for at, (name, labels, cpu) in enumerate(pods)
    ]
    return build_snapshot(generation=1, now=1_000.0, table=table, running=[], pending=tuple(pending))


def with_pairs(racks: int, pairs: int) -> Snapshot:
    """Pairs of three sizes, and as many single pods."""
    pods = [
        (f"pair{at}-{which}", {"budget": "rack", "pair": f"p{at}"}, 1_000 + 500 * (at % 3))
        for at in range(pairs)
        for which in range(2)
    ]
    return cluster(5 * racks, 5, [*pods, *((f"single{at}", {"budget": "rack"}, 1_000) for at in range(pairs))])


def broken(found: RoundResult) -> dict[str, int]:
    """What the plan breaks: pods beyond the budget of their rack, and pairs of which one runs alone or elsewhere."""
    racks = {node.name: dict(node.labels)["rack"] for node in found.after.table.nodes}
    counts = Counter(racks[each.node] for each in found.placements)
    pairs: dict[str, list[str]] = {}
    for each in found.placements:
        name = dict(each.pod.signature.labels).get("pair")
        if name is not None:
            pairs.setdefault(name, []).append(racks[each.node])
    return {
        "pods beyond a budget": sum(max(0, count - BUDGET) for count in counts.values()),
        "pairs not together": sum(len(where) < 2 or len(set(where)) > 1 for where in pairs.values()),
        "pods placed": len(found.placements),
    }


def truths() -> list[dict[str, str | int]]:
    """The example's model, CPUMemory and CPUMemory one by one."""
    drawn = with_pairs(20, 25)
    plans = {
        "RackBudget": run_round(drawn, policies("RackBudget"), _MODELS),
        "CPUMemory": run_round(drawn, policies("CPUMemory"), _MODELS),
        "CPUMemory one by one": run_one_by_one(drawn, policies("CPUMemory"), _MODELS),
    }
    return [{"method": name, **broken(found)} for name, found in plans.items()]


def timed(name: str, model: str, drawn: Snapshot) -> dict[str, str | int | float]:
    """CPU seconds of the network alone."""
    problem = Problem(drawn, policies(model), _MODELS)
    assert problem.demands  # they are made before the time begins
    solving = SolveNetworks()
    begin = process_time()
    rest = solving.apply(problem)
    seconds = process_time() - begin
    decided = invert_all([solving], rest.nothing_placed()).decided
    refused = [each.sentence for each in rest.contradictions]
    return {
        "network": name,
        "nodes": len(drawn.table.nodes),
        "pods": len(drawn.pending),
        "placed": len(decided.placements),
        "gap": decided.slack / max(1, decided.cost),
        "seconds": seconds,
        "refused": "; ".join(refused),
    }


def times(nodes: int, pods: int) -> list[dict[str, str | int | float]]:
    """A plain flow, and integer programs of pairs."""
    plain = cluster(nodes, 40, [(f"p{at}", {"app": f"a{at % 20}"}, 1_000) for at in range(pods)])
    rows = [timed("racks with ladders", "Ladders", plain)]
    rows += [
        timed(f"{pairs} pairs, {racks} racks", "RackBudget", with_pairs(racks, pairs))
        for racks, pairs in ((5, 10), (10, 25), (20, 40))
    ]
    return rows


@click.command()
@click.option("--nodes", type=click.IntRange(40), default=12_500, show_default=True, help="Nodes of the plain flow.")
@click.option("--pods", type=click.IntRange(1), default=50_000, show_default=True, help="Pods of the plain flow.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(nodes: int, pods: int, output: str) -> None:
    """Measures networks of cost models."""
    found = {"truths": truths(), "times": times(nodes, pods)}
    if output == "json":
        click.echo(msgspec.json.encode({"conditions": conditions(), **found}))
        return
    for rows in found.values():
        table = Table(*rows[0])
        for row in rows:
            table.add_row(*(f"{each:.3g}" if isinstance(each, float) else str(each) for each in row.values()))
        console.print(table)
    print_conditions(conditions())


if __name__ == "__main__":
    main()
