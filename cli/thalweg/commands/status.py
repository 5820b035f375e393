"""The commands ``thalweg status`` and ``thalweg top``."""

from __future__ import annotations

import click

from thalweg import options
from thalweg.source import SourceOptions


@click.command(short_help="Show nodes, pods, policies and the last round.")
@options.source
@options.output
@options.pods
@options.watch
def status(source: SourceOptions, output: str, *, pods: bool, watch: bool) -> None:
    """Show how Thalweg is doing: nodes and pods, what waits by workload, policies, queues and the last round.

    --pods lists the waiting pods instead of their workloads. For a dump the pending pods are planned, as
    `thalweg plan` does. A live operator answers only those who may list FlowSchedulingPolicies and FlowQueues.

    Exit code 2: the files or the operator cannot be read.

    \b
    Examples:
      thalweg status
      thalweg status --context staging -o json
      thalweg status -f now.json
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from thalweg.status import run_status

    run_status(source, output, watch=watch, pods=pods)


@click.command(short_help="Show what waits longest and why, live.")
@options.source
def top(source: SourceOptions) -> None:
    """Show what waits longest, whose and why, what was placed lately, shares and rounds as they change.

    The key s sorts what waits by age, pods, namespace or reason; q or Ctrl-C ends it. Without a terminal, and for a
    dump, it prints once.

    Exit code 2: the files or the operator cannot be read.

    \b
    Examples:
      thalweg top
      thalweg top --context staging
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from thalweg.top import run_top

    run_top(source)
