"""The command ``thalweg status``."""

from __future__ import annotations

import click

from thalweg import options
from thalweg.sources.source import SourceOptions


@click.command(short_help="Show what waits and why, policies, queues and rounds.")
@options.source("Namespace of what is listed: pods, workloads, reasons and who leaves. Default: all.")
@options.all_namespaces
@options.listed
@options.pods
@options.watch
def status(source: SourceOptions, output: str, *, all_namespaces: bool, pods: bool, watch: bool) -> None:
    """Show how Thalweg is doing: what waits longest, whose and why, and what was placed lately.

    Then come policies, queues, rounds and the running pods that leave. A pod without a node waits. Those that get
    none by the plan stay pending: they are listed by workload, with --pods one by one. The pods of a dump are planned
    as `thalweg plan` does. A live operator answers only those who may list FlowSchedulingPolicies and FlowQueues.

    --watch on a terminal draws the status again as it changes, on one screen. The key s sorts what waits by age, pods,
    namespace or reason; q or Ctrl-C ends it. In a pipe it prints the status again whenever it changes.

    Exit code 2: the files, the API server or the operator cannot be read.

    \b
    Examples:
      thalweg status
      thalweg status --watch
      thalweg status -n shop --pods
      thalweg status --context staging -o json
      thalweg status -f now.json
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from thalweg_view.status import StatusQuery

    from thalweg.questions.status_run import run_status

    query = StatusQuery(pods or output == "wide", "" if all_namespaces else source.namespace)
    run_status(source, query, output, watch=watch)
