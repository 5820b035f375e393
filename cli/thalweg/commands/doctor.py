"""The command ``thalweg doctor``."""

from __future__ import annotations

from pathlib import Path

import click

from thalweg import options
from thalweg.option_types import NAMESPACED_NAME, NamespacedName


@click.command()
@options.kubeconfig
@options.context
@click.option("--account", "service_account", type=NAMESPACED_NAME,
              help="Service account of the operator. Default: that of the running pods with the chart's labels, else "
                   "thalweg-system/thalweg.")  # fmt: skip
@click.option("--lease", type=NAMESPACED_NAME,
              help="Lease of the operator. Default: every lease with thalweg in its name, or with the label "
                   "app.kubernetes.io/name=thalweg.")  # fmt: skip
@click.option("--scheduler-config", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="KubeSchedulerConfiguration of kube-scheduler. Default: the configuration that the chart stored in "
                   "a Secret, if any.")  # fmt: skip
@click.option("--scheduler-metrics", metavar="URL", default="",
              help="Metrics of kube-scheduler, such as https://HOST:10259/metrics. No credentials are "
                   "sent.")  # fmt: skip
@click.option("--server", metavar="URL", default="",
              help="The operator's view, such as http://127.0.0.1:8444. No credentials are sent. Default: the Service "
                   "that the chart makes.")  # fmt: skip
@click.option("--before-uninstall", "uninstall", is_flag=True,
              help="Also say what names a scheduler of Thalweg, and so waits for ever after Thalweg is "
                   "removed.")  # fmt: skip
@click.option("--request-timeout", default=10.0, show_default=True, type=click.FloatRange(0.1, 300), metavar="SECONDS",
              help="Longest wait for one answer.")  # fmt: skip
@click.option("--strict", is_flag=True, help="Also exit with code 1 for warnings.")
@options.output
def doctor(
    kubeconfig: Path | None,
    context: str | None,
    service_account: NamespacedName | None,
    lease: NamespacedName | None,
    scheduler_config: Path | None,
    scheduler_metrics: str,
    server: str,
    uninstall: bool,  # noqa: FBT001 - click's flags
    request_timeout: float,
    strict: bool,  # noqa: FBT001
    output: str,
) -> None:
    """Check Thalweg's installation in a cluster.

    This checks the CRD, the rights, the lease, clocks, policies, scheduling gates, pods that wait for long, the view,
    versions, certificates, and kube-scheduler's connection to the extender. Each check says OK, WARN, FAIL or SKIP, and
    what to do. Nothing in the cluster is changed.

    Exit code 0: no check failed. Exit code 1: a check failed. Exit code 2: the API server cannot be used.

    \b
    Examples:
      thalweg doctor --kubeconfig ~/.kube/config
      thalweg doctor --scheduler-config /etc/kubernetes/scheduler.yaml
      thalweg doctor --account thalweg/thalweg --strict -o json
      thalweg doctor --before-uninstall
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from thalweg.doctor.cluster_reader import Examination
    from thalweg.doctor.run import run_doctor

    request = Examination(service_account, lease, scheduler_config, scheduler_metrics, request_timeout, server)
    run_doctor(kubeconfig, context, request, output, strict=strict, uninstall=uninstall)
