"""The command ``thalweg scheduler-config``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("scheduler-config")
@click.option("--url", default="https://thalweg.thalweg-system:8443/extender", show_default=True,
              help="URL of the extender, as kube-scheduler reaches it.")  # fmt: skip
@click.option("--kubeconfig-path", default="/etc/kubernetes/scheduler.conf", show_default=True, metavar="PATH",
              help="Path of kube-scheduler's kubeconfig, on kube-scheduler's machine.")  # fmt: skip
@click.option("--ignorable", is_flag=True,
              help="Schedule all pods without a plan while Thalweg does not answer. Default: schedule no "
                   "pod.")  # fmt: skip
@click.option("--scheduler-name", default="thalweg-steered", show_default=True, metavar="NAME",
              help="Scheduler name of steered pods.")  # fmt: skip
@click.option("--node-sample", default=1, show_default=True, type=click.IntRange(1, 100), metavar="PERCENT",
              help="Percentage of nodes that an attempt at a steered pod looks for. Use 100 for "
                   "steering: Prefer.")  # fmt: skip
@click.option("--bind", is_flag=True, help="Let Thalweg bind all pods. Needs `thalweg run --extender-bind`.")
@click.option("--beside", is_flag=True,
              help="Configure a second kube-scheduler that serves steered pods only.")  # fmt: skip
@click.option("--ca-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="CA (PEM) of the extender's certificate. The configuration contains it.")  # fmt: skip
@click.option("--client-cert-file", default="", metavar="PATH",
              help="Path of kube-scheduler's client certificate (PEM), on kube-scheduler's machine.")  # fmt: skip
@click.option("--client-key-file", default="", metavar="PATH",
              help="Path of kube-scheduler's client key (PEM), on kube-scheduler's machine.")  # fmt: skip
def scheduler_config(
    url: str,
    kubeconfig_path: str,
    ignorable: bool,  # noqa: FBT001 - click's flags
    scheduler_name: str,
    node_sample: int,
    bind: bool,  # noqa: FBT001
    beside: bool,  # noqa: FBT001
    ca_file: Path | None,
    client_cert_file: str,
    client_key_file: str,
) -> None:
    """Print the configuration for kube-scheduler.

    With this configuration kube-scheduler asks Thalweg, its extender, where pods go (delivery Extender). Pods that name
    the scheduler `thalweg-steered` get their own profile. All other pods are scheduled as before. Comments in the
    output explain each line. docs/how-to/connect-kube-scheduler.md says how to install it.

    \b
    Examples:
      thalweg scheduler-config --ca-file ca.crt --client-cert-file /etc/thalweg.crt --client-key-file /etc/thalweg.key
      thalweg scheduler-config --ca-file ca.crt --url https://10.96.14.7:8443/extender --ignorable
      thalweg scheduler-config --url http://127.0.0.1:8081/extender --node-sample 100    # for steering: Prefer
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from thalweg.scheduler_config import SchedulerConfig, holds_certificate

    scheme = url.partition("://")[0]
    if scheme not in ("http", "https"):
        raise click.BadParameter(f'"{url}" is not an http or https URL', param_hint="--url")
    if scheme == "https" and ca_file is None:
        raise click.UsageError("an https --url needs --ca-file: kube-scheduler verifies the extender by this CA only")
    if scheme == "http" and ca_file is not None:
        raise click.UsageError("--ca-file needs an https --url")
    if bool(client_cert_file) != bool(client_key_file):
        raise click.UsageError("--client-cert-file and --client-key-file need each other")
    if client_cert_file and scheme == "http":
        raise click.UsageError("--client-cert-file needs an https --url")
    authority = ca_file.read_bytes() if ca_file else b""
    if ca_file and not holds_certificate(authority):
        raise click.BadParameter(f'"{ca_file}" contains no certificate in PEM', param_hint="--ca-file")
    if scheduler_name in ("default-scheduler", "thalweg"):
        owner = "kube-scheduler's default profile" if scheduler_name == "default-scheduler" else "Thalweg's own binder"
        raise click.BadParameter(f'"{scheduler_name}" belongs to {owner}', param_hint="--scheduler-name")
    config = SchedulerConfig(
        url=url,
        kubeconfig=kubeconfig_path,
        ignorable=ignorable,
        scheduler_name=scheduler_name,
        node_sample=node_sample,
        bind=bind,
        second_scheduler=beside,
        authority=authority,
        client_certificate=client_cert_file,
        client_key=client_key_file,
    )
    click.echo(str(config), nl=False)
