"""The command ``thalweg what-if``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from thalweg import options
from thalweg.sources import completion

if TYPE_CHECKING:
    from thalweg.sources.source import SourceOptions


@click.command("what-if")
@options.source()
@click.option(
    "--cordon",
    multiple=True,
    metavar="NODE",
    shell_complete=completion.nodes,
    help="Nothing new is placed on the node.",
)
@click.option(
    "--uncordon",
    multiple=True,
    metavar="NODE",
    shell_complete=completion.nodes,
    help="Pods are placed on the node again.",
)
@click.option("--drain", multiple=True, metavar="NODE", shell_complete=completion.nodes,
              help="The node is cordoned and its pods wait for another, except pods of DaemonSets and static "
                   "pods.")  # fmt: skip
@click.option(
    "--fail",
    multiple=True,
    metavar="LABEL=VALUE",
    help="All nodes with this label are gone, such as zone=a (short for topology.kubernetes.io/zone=a).",
)
@click.option("--remove", multiple=True, metavar="NODE", shell_complete=completion.nodes, help="The node is gone.")
@click.option("--add-nodes", multiple=True, type=int, metavar="COUNT", help="New nodes come. Needs --like.")
@click.option(
    "--like",
    multiple=True,
    metavar="NODE",
    shell_complete=completion.nodes,
    help="Existing node that the new ones are like. One for each --add-nodes, in the same order.",
)
@click.option("--priority", multiple=True, metavar="[NAMESPACE/]POD=NUMBER", help="The pod has another priority.")
@click.option(
    "--policy",
    multiple=True,
    metavar="FILE",
    help="FlowSchedulingPolicies that are added, or replace those of the same name. - is standard input.",
)
@click.option("--apply", multiple=True, metavar="FILE",
              help="Objects that are added, or replace those of the same name: pods, nodes, PodDisruptionBudgets, "
                   "queues, claims, ResourceSlices and all else that `thalweg dump` writes. - is standard "
                   "input.")  # fmt: skip
@options.output
@options.pods
@options.watch
def what_if(source: SourceOptions, output: str, *, pods: bool, watch: bool, **changes: Any) -> None:
    """Show what a change would do to the plan. No cluster is changed.

    The cluster is planned twice, as it is and with the changes. The output sums up what differs, has both plans side by
    side, and a line for each workload that they treat differently. --pods names the pods that find a node, the pods
    that lose theirs, and the running pods that move. All options for changes may be
    given several times and combined. The changes are made in this order: --apply, --policy, --priority, --add-nodes,
    --uncordon, --cordon, --drain, --remove, --fail.

    A pod that loses its node waits as its controller would create it anew. Notes say what a real drain would meet:
    PodDisruptionBudgets, and pods without a controller.

    Exit code 2: the files, the API server or the operator cannot be read, or there is no answer, for example because a
    node or a pod is not there.

    \b
    Examples:
      thalweg what-if -f now.json --drain worker-3
      thalweg what-if -f now.json --fail zone=a -o json
      thalweg what-if -f now.json --add-nodes 3 --like worker-3 --cordon worker-3
      thalweg what-if -f now.json --priority shop/cart-0=1000 --policy my-policy.yaml
      thalweg what-if --apply new-pods.yaml
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from thalweg.questions.what_if import run_what_if

    run_what_if(source, changes, output, watch=watch, pods=pods)
