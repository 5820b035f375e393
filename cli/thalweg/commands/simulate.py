"""The command ``thalweg simulate``."""

from __future__ import annotations

import click

from thalweg import options
from thalweg.source import SourceOptions


@click.command()
@options.source_of_objects
@options.output
@click.option("--reschedule", is_flag=True,
              help="Plan moves of running pods as if every policy had rescheduling: {mode: Act}.")  # fmt: skip
@click.option("--compare", is_flag=True,
              help="Place the same pods one by one too, and print what each way gets: pods, whole gangs, use of each "
                   "resource.")  # fmt: skip
@click.option("--nodes", is_flag=True,
              help="In -o json: the reason of every node for each pending pod. As large as pods times "
                   "nodes.")  # fmt: skip
@options.pods
@click.option("-v", "--verbose", is_flag=True, help="Print the plan's cost too, and what is proven of it.")
def simulate(
    source: SourceOptions, output: str, *, reschedule: bool, compare: bool, nodes: bool, pods: bool, verbose: bool
) -> None:
    """Plan the pending pods of a cluster or a dump. No cluster is changed.

    The output has a line for each workload: a gang, a controller, or a pod by itself. --pods lists the pods.

    All pending pods are planned, for any scheduler, with three exceptions: pods with scheduling gates, pods with
    resource claims, and pods with volume claims that Thalweg would bind itself (delivery: Binder). The output names
    these with the reason. Pods of other schedulers that no policy governs are planned as under delivery: Observe.
    Policies in the dump apply as in a cluster. A policy that the API server would refuse is an error.

    The plan says which running pods leave. A pod that fits on no node may preempt pods with a lower priority. Running
    pods are moved to other nodes only with --reschedule, or if a policy in the dump moves them.

    With --compare the output is a table with both ways. One by one, each pod in its turn (priority, then age) takes
    the best node by kube-scheduler's filters and a model of its scores. Constraints of policies hold in both.
    One by one knows no gangs and no queues, and evicts no pod.

    Without -f the API server of the kubeconfig lists the objects: this needs the right to list nodes and pods. Kinds
    that you may not list are named in warnings. A dump for -f is written by: thalweg dump > now.json

    Warnings about ignored kinds and missing objects go to standard error and into the JSON output. If several files
    contain the same object, the last file counts.

    Exit code 2: a file or the API server cannot be read, a file is not a cluster dump, or contains two versions of an
    object.

    \b
    Examples:
      thalweg simulate -f now.json
      thalweg dump | thalweg simulate -f - -o json
      thalweg simulate -f now.json -f new-pods.yaml
      thalweg simulate -f now.json --reschedule
      thalweg simulate -f now.json --compare
      thalweg simulate --context staging
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from thalweg.asking import read_scenario
    from thalweg.simulate import Printed, run_simulation

    printed = Printed(output, comparison=compare, nodes=nodes, pods=pods, verbose=verbose)
    run_simulation(read_scenario(source), printed, reschedule=reschedule)
