"""The command ``thalweg why``."""

from __future__ import annotations

import click

from thalweg import options
from thalweg.sources import completion
from thalweg.sources.source import SourceOptions


@click.command(short_help="Say why a pod waits, and what would place it.")
@click.argument("targets", nargs=-1, metavar="[POD|KIND/NAME]...", shell_complete=completion.targets)
@options.source(
    "Namespace of names without one. Default: that of the context; `default` for a dump. Without a target: namespace "
    "of the pods that are listed. Default: all."
)
@options.all_namespaces
@click.option("--nodes", is_flag=True,
              help="Show which nodes the pod may use too, which filter rejects the others, and who would leave for it. "
                   "Without a target: a line for each waiting pod.")  # fmt: skip
@click.option("--no-fixes", is_flag=True,
              help="Do not look for changes that would place it. Each is planned, which takes the time of several "
                   "plans.")  # fmt: skip
@options.output
@options.watch
def why(
    source: SourceOptions,
    targets: tuple[str, ...],
    output: str,
    *,
    all_namespaces: bool,
    nodes: bool,
    no_fixes: bool,
    watch: bool,
) -> None:
    """Say why a pod waits: the one reason that decides, what proves it, and what to do.

    The target is a pod, or the pods of a gang, deployment, job, statefulset, daemonset or replicaset, as kubectl names
    them. The first line has the words of the pod's condition and its Event. An answer has at most ten lines, and what
    --nodes adds. Several targets have an answer each, and -o json an array of them.

    --nodes adds a table with the verdict of every node. The verdicts are those of kube-scheduler's filters for the
    present state, before any other waiting pod is placed. If the pod fits on no node, but would with more room, the
    output also says which running pods would leave for it if it waited alone, or why none would. Without a target
    each waiting pod gets one line. -o json has all pods and all nodes. This is planned here, of a dump or as with
    --direct.

    Exit code 2: the files, the API server or the operator cannot be read, there is no such target, or nothing of it
    waits.

    \b
    Examples:
      thalweg why shop/cart-0 -f now.json
      thalweg why shop/cart-0 -f now.json --nodes
      thalweg why -f now.json --nodes
      thalweg why cart-0 -n shop --context staging
      thalweg why gang/ml/train -f now.json
      thalweg why deployment/shop/cart -f now.json --no-fixes -o json
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    if not targets and not nodes:
        raise click.UsageError("name a pod, or give --nodes for a line for each waiting pod")
    if watch and nodes and not targets:
        raise click.UsageError("--watch needs a target")
    if all_namespaces and targets:
        raise click.UsageError("-A lists all waiting pods: leave out -A, or the targets")
    if nodes:
        source = options.planned_here(source, "--nodes")
    from thalweg.questions.why import run_why, run_why_of_all, run_why_with_nodes

    if not targets:
        run_why_of_all(source, "" if all_namespaces else source.namespace, output)
        return
    ask = run_why_with_nodes if nodes else run_why
    ask(source, targets, output, fixes=not no_fixes, watch=watch)
