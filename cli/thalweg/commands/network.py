"""The command ``thalweg network``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from thalweg import options

if TYPE_CHECKING:
    from thalweg.sources.source import SourceOptions


@click.command()
@options.source()
@click.option("--policy", metavar="NAME", default="",
              help="Show the network of this policy. Default: of each policy whose pods are planned.")  # fmt: skip
@click.option("--nodes", is_flag=True, help="A row for each node, where a policy draws the network.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml", "dot"]), default="table",
              show_default=True, help="Output format. dot: a digraph for Graphviz; arcs that are full are "
                                      "red.")  # fmt: skip
@options.watch
def network(source: SourceOptions, policy: str, output: str, *, nodes: bool, watch: bool) -> None:
    """Show flow, price and limit of each arc of a network.

    The waiting pods are planned first. A network that a policy draws (spec.network, or a cost model that draws one) is
    shown as it is after that plan: each pod of it that has a node is a unit of flow, whether it ran before or not.
    Values of a label have rows of their own. Arcs from one point to nodes are one row, unless there is --nodes.

    The price is that of the next unit on the arc; a range where it differs by the pod or the node. An arc is full where
    its flow is its maximum, over where more pods run than that, and short where it is below its minimum. Pods that the
    plan leaves go to Unscheduled, at what waiting costs them; where none waits the price is the one that is drawn. The
    flow may have pods of other policies, where the selectors of this one match them.

    Where a policy draws nothing the rows say what it amounts to: workloads, zones, nodes that are alike, and
    Unscheduled. The flow is the pods of the plan then, and the price is what they pay on average. Limits of its
    constraints are rows that begin at the pods that they count, and their label takes the place of zones.

    A table has at most 40 rows for each policy, with --nodes 200, and so has a graph. Where there are more arcs, those
    over, short or full come first, and the values of a label that tell least are one row: "rack: 95 more". The last
    line says how many arcs the rows stand for.

    Exit code 2: the files, the API server or the operator cannot be read, or no policy has the name.

    \b
    Examples:
      thalweg network -f now.json
      thalweg network -f examples/networks/overflow.yaml --policy overflow
      thalweg network -f now.json --nodes -o json
      thalweg network -f now.json -o dot | dot -Tsvg > network.svg
      thalweg network
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from flowcore.questions.scenario.network_flow import NetworkQuery
    from thalweg.questions.network import run_network

    run_network(source, NetworkQuery(policy, nodes), output, watch=watch)
