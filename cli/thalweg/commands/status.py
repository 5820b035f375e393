"""The command ``thalweg status``."""

from __future__ import annotations

import click

from thalweg import options
from thalweg.sources.source import SourceOptions


@click.command(short_help="Show what waits and why, policies, queues and rounds.")
@options.source
@options.output
@options.pods
@options.watch
def status(source: SourceOptions, output: str, *, pods: bool, watch: bool) -> None:
    """Show how Thalweg is doing: what waits longest, whose and why, and what was placed lately.

    Then come policies, queues, rounds and the running pods that leave. What waits is listed by workload; --pods lists
    the waiting pods. For a dump the pending pods are planned, as `thalweg plan` does. A live operator answers only
    those who may list FlowSchedulingPolicies and FlowQueues.

    --watch on a terminal draws the status again as it changes, on one screen. The key s sorts what waits by age, pods,
    namespace or reason; q or Ctrl-C ends it. In a pipe it prints the status again whenever it changes.

    Exit code 2: the files or the operator cannot be read.

    \b
    Examples:
      thalweg status
      thalweg status --watch
      thalweg status --context staging -o json
      thalweg status -f now.json
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from thalweg.questions.status_run import run_status

    run_status(source, output, watch=watch, pods=pods)
