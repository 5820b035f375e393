"""The command ``thalweg audit``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from thalweg import options
from thalweg.option_types import DURATION

if TYPE_CHECKING:
    from thalweg.sources.source import SourceOptions


@click.command(short_help="Show what placement costs, with proof.")
@options.source()
@click.option("--moves", type=click.IntRange(min=0), default=100, show_default=True,
              help="A plan moves at most so many running pods.")  # fmt: skip
@click.option("--fail-above", "limits", multiple=True, metavar="FINDING=AMOUNT",
              help="Exit with code 1 if a plan does better by more than AMOUNT, such as WaitingPods=0 or "
                   "StrandedRoom/memory=64Gi. May be given several times.")  # fmt: skip
@click.option("--html", "page", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write a page for a browser too, in one file.")  # fmt: skip
@click.option("--since", type=DURATION,
              help="Audit nothing: show what the operator's audits of this time said, such as 7d, and whose placements "
                   "closed rooms. A dump has what its operator kept.")  # fmt: skip
@click.option("--apply", "plan", metavar="PLAN",
              help="Show all steps of the plan of one finding, such as EmptyNodes or StrandedRoom/memory, and which "
                   "policy would carry each out. Needs --dry-run.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="With --apply: carry out nothing.")
@options.output
def audit(
    source: SourceOptions,
    moves: int,
    limits: tuple[str, ...],
    page: Path | None,
    since: int | None,
    plan: str | None,
    output: str,
    *,
    dry_run: bool,
) -> None:
    """Show what the placement of pods costs, whoever placed them: how much better a plan of the same cluster is.

    NOW is what there is of a finding. A PLAN AVOIDS so much of it: its steps are printed below. NO PLAN MORE THAN so
    much: that follows from prices of room, which -o json has. Where both are equal the figure is exact.
    tools/verify_audit.py of the repository checks both without Thalweg.

    Everything that runs goes on running in these plans. A running pod moves only if it has a controller, no local
    storage and no volume claims, is not of a DaemonSet, and no PodDisruptionBudget stands against it. There is room for
    it on its next node before it leaves. Policies' limits of moves do not count, their constraints do. In the plan of
    PriorityInversions alone pods of lower priority leave.

    The audit is made here, of a dump or of what the API server lists, as with --direct: only --since asks an operator,
    and options about its view go with that. No cluster is changed. --apply PLAN --dry-run shows the evictions and
    places of one plan in their order, and says of each step which policy would carry it out, or what stands in the way.
    Policies do it under their limits: for waiting pods, by preemption, and with reason Gain.

    Exit code 1: a finding is above its limit. A limit for stranded room is kept where the audit has no such finding.
    Exit code 2: the files or the API server cannot be read, or --apply names no finding.

    \b
    Examples:
      thalweg audit -f now.json
      thalweg audit -f now.json -o json > audit.json
      thalweg audit -f now.json --html audit.html
      thalweg audit -f now.json --fail-above WaitingPods=0
      thalweg audit -f now.json --apply WaitingPods --dry-run
      thalweg audit --context staging --moves 10
      thalweg audit --since 7d
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from flowcore.questions.audit.answer_audit import AuditQuery
    from flowcore.questions.audit.apply_plan import ApplyQuery
    from thalweg.audit.run_apply import run_apply
    from thalweg.audit.run_audit import limits_of, run_audit
    from thalweg.audit.run_since import run_since

    if since is not None:
        if plan is not None or limits or page:
            raise click.UsageError("--since audits nothing: leave out --apply, --fail-above and --html")
        run_since(source, since, output)
        return
    if dry_run != (plan is not None):
        raise click.UsageError(
            "--apply and --dry-run need each other: policies carry plans out, and this command shows them"
        )
    if plan is not None:
        if limits or page:
            raise click.UsageError("--apply shows one plan: leave out --fail-above and --html")
        run_apply(options.planned_here(source, "audit"), ApplyQuery(plan, moves), output)
        return
    run_audit(options.planned_here(source, "audit"), AuditQuery(most_moves=moves), limits_of(limits), output, page)
