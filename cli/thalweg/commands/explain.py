"""The command ``thalweg explain``."""

from __future__ import annotations

import click

from thalweg import options
from thalweg.source import SourceOptions


@click.command()
@click.argument("pods", nargs=-1, metavar="[NAMESPACE/POD]...")
@options.source_of_objects
@options.output
def explain(pods: tuple[str, ...], source: SourceOptions, output: str) -> None:
    """Show which nodes each waiting pod may use, and why.

    The pods come from a cluster dump, or from a live cluster. The verdicts are those of kube-scheduler's filters for
    the present state, before any other waiting pod is placed. Without names, each waiting pod gets one line. Give pod
    names to see every node. If such a pod fits on no node, the output also says which running pods would leave for it,
    or why none would.

    Without -f the API server of the kubeconfig lists the objects: this needs the right to list nodes and pods. Kinds
    that you may not list are named in warnings. A dump for -f is written by: thalweg dump > now.json

    Warnings about ignored kinds and missing objects go to standard error.

    Exit code 2: a file or the API server cannot be read, a file is not a cluster dump, or contains no waiting pod of
    that name.

    \b
    Examples:
      thalweg explain -f now.json
      thalweg dump | thalweg explain -f -
      thalweg explain shop/cart-0 -f now.json
      thalweg explain -f now.json -o json
      thalweg explain --context staging shop/cart-0
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from thalweg.asking import read_scenario
    from thalweg.explain import run_explanation

    run_explanation(pods, read_scenario(source), output)
