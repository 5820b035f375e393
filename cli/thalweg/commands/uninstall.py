"""The command ``thalweg uninstall``."""

from __future__ import annotations

from pathlib import Path

import click

from thalweg import options
from thalweg.option_types import NAMESPACED_NAME, NamespacedName


@click.command()
@options.kubeconfig
@options.context
@click.option("--lease", type=NAMESPACED_NAME,
              help="Lease of the operator. This command holds it, so that no operator starts. Default: every Lease "
                   "with the label app.kubernetes.io/name=thalweg, and kube-system/thalweg. Needed if there is "
                   "none.")  # fmt: skip
@click.option("--list", "lists", is_flag=True,
              help="List what names a scheduler of Thalweg, and say what becomes of it. Removes nothing.")  # fmt: skip
@click.option("--patches", metavar="SCHEDULER",
              help="Print the commands of kubectl that make all of these name another scheduler, such as "
                   "default-scheduler. Removes nothing.")  # fmt: skip
@click.option("--policies", is_flag=True, help="Also delete all FlowSchedulingPolicies.")
@click.option("--force", is_flag=True, help="Take the lease from a running operator. That operator then exits.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@options.output
def uninstall(
    kubeconfig: Path | None,
    context: str | None,
    lease: NamespacedName | None,
    lists: bool,  # noqa: FBT001 - click's flags
    patches: str | None,
    policies: bool,  # noqa: FBT001
    force: bool,  # noqa: FBT001
    yes: bool,  # noqa: FBT001
    output: str,
) -> None:
    """Remove Thalweg's gates from a cluster.

    This removes Thalweg's admission policies and its scheduling gates on pods, so that no pod waits for Thalweg's gate.
    Stop the operator first: while one runs, this command changes nothing and exits with code 1. You can repeat the
    command after an interruption. It does not delete Deployments, roles and the CRD.

    Pods that name the scheduler `thalweg` still wait for it afterwards. So the command says first what names a
    scheduler of Thalweg. --list and --patches help to give these workloads another scheduler before.

    Exit code 1: an operator runs, something could not be removed, or the API server cannot be used.

    \b
    Examples:
      thalweg uninstall --list
      thalweg uninstall --patches default-scheduler > back.sh
      thalweg uninstall --kubeconfig ~/.kube/config
      thalweg uninstall --kubeconfig ~/.kube/config --yes --policies -o json
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from thalweg.uninstall.uninstall import run_list, run_patches, run_uninstall

    if patches == "":
        raise click.UsageError("--patches: name the scheduler that these are to have, such as default-scheduler")
    if lists and patches:
        raise click.UsageError("give --list or --patches, not both")
    if lists:
        run_list(kubeconfig, context, output)
        return
    if patches:
        run_patches(kubeconfig, context, patches)
        return
    run_uninstall(kubeconfig, context, lease, output, policies=policies, force=force, confirmed=yes)
