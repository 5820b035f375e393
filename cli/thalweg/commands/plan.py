"""The command ``thalweg plan``."""

from __future__ import annotations

import click

from thalweg import options
from thalweg.source import SourceOptions


@click.command(short_help="List the plan: nodes and reasons of waiting pods.")
@options.source
@click.option("--policy", metavar="NAME", default="", help="List only pods that this policy governs.")
@click.option("-A", "--all-namespaces", is_flag=True, help="List the pods of all namespaces.")
@options.output
@options.pods
@options.watch
def plan(source: SourceOptions, policy: str, output: str, *, all_namespaces: bool, pods: bool, watch: bool) -> None:
    """Show the plan: a line for each workload, how many of its pods are placed and why the others wait.

    --pods lists the node of each waiting pod, or the first line of the reason. The plan is that of the next round, for
    all waiting pods; the namespace and --policy only choose which pods are shown. A dump has all namespaces. Under
    policies with delivery: Observe nothing is carried out. Their pods that another scheduler placed are listed with its
    node beside the planned one. That plan is made as if they all waited.

    Exit code 2: the files or the operator cannot be read, or no policy has the name.

    \b
    Examples:
      thalweg plan -f now.json
      thalweg plan --context staging -n shop
      thalweg plan -A --policy observed -o json
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from thalweg.plan import run_plan

    run_plan(source, policy, output, all_namespaces=all_namespaces, watch=watch, pods=pods)
