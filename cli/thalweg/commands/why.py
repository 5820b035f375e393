"""The command ``thalweg why``."""

from __future__ import annotations

import click

from thalweg import options
from thalweg.source import SourceOptions


@click.command(short_help="Say why a pod waits, and what would place it.")
@click.argument("target", metavar="POD|KIND/NAME")
@options.source
@click.option("--no-fixes", is_flag=True,
              help="Do not look for changes that would place it. Each is planned, which takes the time of several "
                   "plans.")  # fmt: skip
@options.output
@options.watch
def why(source: SourceOptions, target: str, output: str, *, no_fixes: bool, watch: bool) -> None:
    """Say why a pod waits: the one reason that decides, what proves it, and what to do.

    The target is a pod, or the pods of a gang, deployment, job, statefulset or replicaset, as kubectl names them.
    The first line has the words of the pod's condition and its Event. There are at most ten lines.

    Exit code 2: the files or the operator cannot be read, there is no such target, or nothing of it waits.

    \b
    Examples:
      thalweg why shop/cart-0 -f now.json
      thalweg why cart-0 -n shop --context staging
      thalweg why gang/ml/train -f now.json
      thalweg why deployment/shop/cart -f now.json --no-fixes -o json
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from thalweg.why import run_why

    run_why(source, target, output, fixes=not no_fixes, watch=watch)
