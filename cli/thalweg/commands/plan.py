"""The command ``thalweg plan``."""

from __future__ import annotations

import click

from thalweg import options
from thalweg.sources.source import SourceOptions


@click.command(short_help="List the plan: nodes and reasons of waiting pods.")
@options.source("Namespace whose pods are listed. Default: that of the context; all for a dump.")
@click.option("--policy", metavar="NAME", default="", help="List only pods that this policy governs.")
@options.all_namespaces
@click.option("--reschedule", is_flag=True,
              help="Plan moves of running pods as if every policy had rescheduling: {mode: Act}.")  # fmt: skip
@click.option("--compare", is_flag=True,
              help="Place the same pods one by one too, and print what each way gets: pods, whole gangs, use of each "
                   "resource.")  # fmt: skip
@click.option("--nodes", is_flag=True,
              help="In -o json and yaml: the reason of every node for each pending pod. As large as pods times "
                   "nodes.")  # fmt: skip
@options.listed
@options.pods
@click.option("-v", "--verbose", is_flag=True, help="Print the plan's cost too, and what is proven of it.")
@options.watch
def plan(
    source: SourceOptions,
    policy: str,
    output: str,
    *,
    all_namespaces: bool,
    reschedule: bool,
    compare: bool,
    nodes: bool,
    pods: bool,
    verbose: bool,
    watch: bool,
) -> None:
    """Show the plan: a line for each workload, how many of its pods are placed and why the others wait.

    --pods lists the node of each waiting pod, or the first line of the reason. The plan is that of the next round, for
    all waiting pods; the namespace and --policy only choose which pods are shown. A dump has all namespaces. No cluster
    is changed.

    The plan says which running pods leave. A pod that fits on no node may preempt pods with a lower priority. Running
    pods are moved to other nodes only with --reschedule, or if a policy moves them.

    Under policies with delivery: Observe nothing is carried out. Their pods that another scheduler placed are listed
    with its node beside the planned one. That plan is made as if they all waited.

    With --compare the output is a table with both ways for the whole cluster. One by one, each pod in its turn
    (priority, then age) takes the best node by kube-scheduler's filters and a model of its scores. Constraints of
    policies hold in both. One by one knows no gangs and no queues, and evicts no pod.

    A plan that is made here, of a dump or with --direct, has all pending pods, for any scheduler. It names pods with
    scheduling gates, and others that cannot be planned, with the reason. Pods with claims are planned with the volumes
    and the devices that the dump has; --pods and -o json say which devices they get. Policies in a dump apply as in a
    cluster. A policy that the API server would refuse is an error. If several files contain the same object, the last
    file counts. --reschedule, --compare and --nodes plan here.

    A dump for -f is written by: thalweg dump > now.json. The help of dump has the kinds that are read, such as
    PersistentVolumeClaims and ResourceClaims. Warnings about ignored kinds and missing objects go to standard error and
    into the JSON output.

    Exit code 2: the files, the API server or the operator cannot be read, a file is not a cluster dump or contains two
    versions of an object, or no policy has the name.

    \b
    Examples:
      thalweg plan -f now.json
      thalweg plan -f now.json -f new-pods.yaml
      thalweg plan -f now.json -o name
      thalweg plan -f now.json --compare
      thalweg plan -f now.json --reschedule
      thalweg dump | thalweg plan -f - -o json
      thalweg plan --context staging -n shop
      thalweg plan -A --policy observed -o json
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    pods = pods or output == "wide"
    if compare and output == "name":
        raise click.UsageError("--compare prints how many pods each way places, and no names: leave out -o name")
    if compare and pods:
        raise click.UsageError(
            "--compare prints how many pods each way places, and no list of them: leave out --pods and -o wide"
        )
    if compare and policy:
        raise click.UsageError("--compare is of the whole cluster: leave out --policy")
    if nodes and output not in ("json", "yaml"):
        raise click.UsageError(
            "--nodes is for -o json and yaml; a table of the nodes of one pod: thalweg why POD --nodes"
        )
    for name, given in (("--reschedule", reschedule), ("--compare", compare), ("--nodes", nodes)):
        if given:
            source = options.planned_here(source, name)
    from thalweg.plans.plan import PlanOptions, Printed, run_plan

    asked, printed = PlanOptions(reschedule, compare, nodes), Printed(output, watch, pods, verbose)
    run_plan(source, policy, asked, printed, all_namespaces=all_namespaces)
