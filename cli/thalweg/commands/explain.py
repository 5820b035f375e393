"""The command ``thalweg explain``."""

from __future__ import annotations

import click

from thalweg import options


@click.command()
@click.argument("pods", nargs=-1, metavar="[NAMESPACE/POD]...")
@options.files
@options.output
def explain(pods: tuple[str, ...], files: tuple[str, ...], output: str) -> None:
    """Show which nodes each waiting pod may use, and why.

    The pods come from a cluster dump. The verdicts are those of kube-scheduler's filters for the present state, before
    any other waiting pod is placed. Without names, each waiting pod gets one line. Give pod names to see every node. If
    such a pod fits on no node, the output also says which running pods would leave for it, or why none would.

    This command dumps a cluster. Add ,fsp ,podgroups and ,noderesourcetopologies if it has these kinds. Add
    ,deviceclasses if pods ask for devices.

    \b
      kubectl get nodes,pods,namespaces,pdb,pc,pvc,pv,sc,csinodes,csidrivers,csistoragecapacities,volumeattachments \\
        -A -o json > now.json

    Warnings about ignored kinds and missing objects go to standard error.

    Exit code 2: a file cannot be read, is not a cluster dump, or contains no waiting pod of that name.

    \b
    Examples:
      thalweg explain -f now.json
      kubectl get nodes,pods,namespaces -A -o json | thalweg explain -f -
      thalweg explain shop/cart-0 -f now.json
      thalweg explain -f now.json -o json
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from thalweg.explain import run_explanation

    run_explanation(pods, files, output)
