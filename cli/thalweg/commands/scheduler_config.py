"""The command ``thalweg scheduler-config``."""

from __future__ import annotations

from pathlib import Path

import click

from thalweg import options
from thalweg.option_types import NAMESPACED_NAME, NamespacedName

_DEFAULT_URL = "https://thalweg.thalweg-system:8443/extender"


@click.command("scheduler-config")
@click.option("--url", show_default=_DEFAULT_URL, metavar="URL",
              help="URL of the extender, as kube-scheduler reaches it.")  # fmt: skip
@click.option("--service", type=NAMESPACED_NAME,
              help="Service of the extender. Its cluster IP makes the URL. Instead of --url.")  # fmt: skip
@click.option("--server-name", default="", metavar="DNS-NAME",
              help="Name in the extender's certificate, if it is not the host of the URL.")  # fmt: skip
@click.option("--kubeconfig-path", default="/etc/kubernetes/scheduler.conf", show_default=True, metavar="PATH",
              help="Path of kube-scheduler's kubeconfig, on kube-scheduler's machine. Empty: the account of its "
                   "pod.")  # fmt: skip
@click.option("--ignorable", is_flag=True,
              help="Schedule all pods without a plan while Thalweg does not answer. Default: schedule no "
                   "pod.")  # fmt: skip
@click.option("--scheduler-name", default="thalweg-steered", show_default=True, metavar="NAME",
              help="Scheduler name of steered pods.")  # fmt: skip
@click.option("--node-sample", default=1, show_default=True, type=click.IntRange(1, 100), metavar="PERCENT",
              help="Percentage of nodes that an attempt at a steered pod looks for. Use 100 for "
                   "steering: Prefer. With 1 kube-scheduler asks for no scores.")  # fmt: skip
@options.ask_for
@click.option("--beside", is_flag=True,
              help="Configure a second kube-scheduler that serves steered pods only. The cluster's own one has no "
                   "extender then, and keeps its batching.")  # fmt: skip
@click.option("--lease", type=NAMESPACED_NAME,
              help="Lease by which the replicas of kube-scheduler elect a leader. Default: its own; with --beside "
                   "none.")  # fmt: skip
@click.option("--ca-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="CA (PEM) of the extender's certificate. The configuration contains it.")  # fmt: skip
@click.option("--ca-path", default="", metavar="PATH",
              help="Path of this CA on kube-scheduler's machine. Instead of --ca-file.")  # fmt: skip
@click.option("--client-cert-file", default="", metavar="PATH",
              help="Path of kube-scheduler's client certificate (PEM), on kube-scheduler's machine.")  # fmt: skip
@click.option("--client-key-file", default="", metavar="PATH",
              help="Path of kube-scheduler's client key (PEM), on kube-scheduler's machine.")  # fmt: skip
@click.option("--certificates", type=NAMESPACED_NAME,
              help="Secret with tls.crt, tls.key and ca.crt for kube-scheduler. The configuration contains them. "
                   "Instead of the four options above.")  # fmt: skip
@click.option("--store", type=NAMESPACED_NAME,
              help="Secret to store the configuration in, under the key scheduler.yaml. Instead of printing "
                   "it.")  # fmt: skip
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path),
              help="File to write the configuration to, which only its owner can read. Instead of printing "
                   "it.")  # fmt: skip
@options.kubeconfig
@options.context
def scheduler_config(
    url: str | None,
    service: NamespacedName | None,
    server_name: str,
    kubeconfig_path: str,
    ignorable: bool,  # noqa: FBT001 - click's flags
    scheduler_name: str,
    node_sample: int,
    ask_for: str,
    beside: bool,  # noqa: FBT001
    lease: NamespacedName | None,
    ca_file: Path | None,
    ca_path: str,
    client_cert_file: str,
    client_key_file: str,
    certificates: NamespacedName | None,
    store: NamespacedName | None,
    output: Path | None,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Print the configuration for kube-scheduler.

    With this configuration kube-scheduler asks Thalweg, its extender, where pods go (delivery Extender). Pods that name
    the scheduler `thalweg-steered` get their own profile. All other pods are scheduled as before. Comments in the
    output explain each line. docs/how-to/connect-kube-scheduler.md says how to install it.

    --service, --certificates and --store need a cluster. Exit code 1: it lacks one of them.

    \b
    Examples:
      thalweg scheduler-config --ca-file ca.crt --client-cert-file /etc/thalweg.crt --client-key-file /etc/thalweg.key
      thalweg scheduler-config --ca-file ca.crt --url https://10.96.14.7:8443/extender --ignorable
      thalweg scheduler-config --url http://127.0.0.1:8081/extender --node-sample 100    # for steering: Prefer
      thalweg scheduler-config --service thalweg-system/thalweg-extender --output scheduler.yaml \\
        --server-name thalweg-extender.thalweg-system.svc --certificates thalweg-system/thalweg-extender-client-tls
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from thalweg.scheduler_config.scheduler_config import SchedulerConfig
    from thalweg.scheduler_config.scheduler_config_run import Sources, run_scheduler_config

    if url and service:
        raise click.UsageError("--url and --service exclude each other")
    if scheduler_name in ("default-scheduler", "thalweg"):
        owner = "kube-scheduler's default profile" if scheduler_name == "default-scheduler" else "Thalweg's own binder"
        raise click.BadParameter(f'"{scheduler_name}" belongs to {owner}', param_hint="--scheduler-name")
    config = SchedulerConfig(
        url=url or _DEFAULT_URL,
        kubeconfig=kubeconfig_path,
        ignorable=ignorable,
        scheduler_name=scheduler_name,
        node_sample=node_sample,
        second_scheduler=beside,
        governed_only=ask_for == options.GOVERNED,
        server_name=server_name,
        lease=str(lease or ""),
        client_certificate=client_cert_file,
        client_key=client_key_file,
    )
    sources = Sources(service, certificates, ca_file, ca_path)
    run_scheduler_config(config, sources, store, output, kubeconfig, context)
