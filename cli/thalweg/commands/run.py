"""The command ``thalweg run``."""

from __future__ import annotations

from pathlib import Path

import click

from thalweg import options
from thalweg.option_types import FEATURE_GATES, HOST_PORT, NAMESPACED_NAME, Address, NamespacedName


@click.command()
@options.kubeconfig
@options.context
@click.option("--listen", type=HOST_PORT, default="0.0.0.0:8080", show_default=True,
              help="Address that serves /healthz, /readyz and /metrics.")  # fmt: skip
@click.option("--probe-listen", type=HOST_PORT,
              help="A second address of the same pages, for the kubelet's probes alone: whoever floods the first one "
                   "does not reach it. Default: none.")  # fmt: skip
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True,
              help="Format of log lines.")  # fmt: skip
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info",
              show_default=True, help="Lowest level of log lines.")  # fmt: skip
@click.option("--round-budget", default=0.3, show_default=True, type=click.FloatRange(0, 30), metavar="SECONDS",
              help="Time that a round may spend on improving its plan.")  # fmt: skip
@click.option("--device-timeout", default=600.0, show_default=True, type=click.FloatRange(1, 86400),
              metavar="SECONDS",
              help="Time that a driver may take until devices are ready that a pod of delivery Binder was given. After "
                   "that the pod gives them back and is planned anew.")  # fmt: skip
@click.option("--feature-gates", default="", type=FEATURE_GATES, metavar="GATE=BOOL,...",
              help="kube-scheduler's feature gates for devices that you have set, such as DRADeviceTaints=false. The "
                   "others have the defaults of the API server's version.")  # fmt: skip
@click.option("--record", "records", type=click.Path(file_okay=False, path_type=Path),
              help="Folder that keeps the last 20 rounds, for `thalweg replay`.")  # fmt: skip
@click.option("--dump-directory", type=click.Path(file_okay=False, path_type=Path),
              help="Folder for dumps of the state, for `thalweg plan` and `thalweg replay`. SIGUSR1 asks for "
                   "one.")  # fmt: skip
@click.option("--extender-listen", type=HOST_PORT,
              help="Address that serves kube-scheduler's extender, for delivery Extender. Default: no "
                   "extender.")  # fmt: skip
@click.option("--extender-cert", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Certificate of the extender (PEM). This file and the next two are read again when they "
                   "change.")  # fmt: skip
@click.option("--extender-key", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Private key of the extender (PEM).")  # fmt: skip
@click.option("--extender-client-ca", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="CA (PEM) that must have signed the client's certificate.")  # fmt: skip
@options.ask_for
@click.option("--lease", default="kube-system/thalweg", show_default=True, type=NAMESPACED_NAME,
              help="Lease that the operator holds while it works. All operators that act must name the same lease: "
                   "two leases are two leaders, which overcommit nodes. The chart's is "
                   "RELEASE-NAMESPACE/RELEASE.")  # fmt: skip
@click.option("--observe", "observes", is_flag=True,
              help="Plan all pods as under delivery Observe, whatever policies say, and write nothing but the Lease. "
                   "rights/observe.yaml is enough. Beside an operator that acts, name another "
                   "--lease.")  # fmt: skip
@click.option("--replicated", is_flag=True,
              help="Stand by while another operator holds the lease, instead of ending.")  # fmt: skip
@click.option("--worker-memory", metavar="QUANTITY",
              help="Memory limit of the planning process, such as 4Gi. 0 means no limit.  "
                   "[default: half of the container's limit]")  # fmt: skip
@click.option("--extender-endpoints", type=NAMESPACED_NAME,
              help="Service without a selector, with a port named extender. The leader writes its EndpointSlice with "
                   "the address in the environment variable POD_IP.")  # fmt: skip
@click.option("--view-listen", type=HOST_PORT,
              help="Address that serves the view: the web page and what `kubectl thalweg` asks. Default: no "
                   "view.")  # fmt: skip
@click.option("--view-cert", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Certificate of the view (PEM). This file and the next one are read again when they change.  "
                   "[default: no TLS on loopback, else a new certificate that nobody signed]")  # fmt: skip
@click.option("--view-key", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Private key of the view (PEM).")  # fmt: skip
@click.option("--view-endpoints", type=NAMESPACED_NAME,
              help="Service without a selector, with a port named https. The leader writes its Endpoints with the pod "
                   "of the environment variables POD_NAMESPACE, POD_NAME and POD_IP.")  # fmt: skip
# At most half of STALE_AFTER (flowcore.cluster.usage_samples): a sample counts until the next one.
@click.option("--usage-interval", default=30.0, show_default=True, type=click.FloatRange(1, 90), metavar="SECONDS",
              help="Time between two polls of measured usage, while a policy has `cost.utilisation` Measured or "
                   "Larger. A sample counts for 180 seconds.")  # fmt: skip
@click.option("--prometheus-url", metavar="URL",
              help="Prometheus that --prometheus-query asks, such as http://prometheus.monitoring:9090.")  # fmt: skip
@click.option("--prometheus-query", "prometheus_queries", multiple=True, metavar="NAME=PROMQL",
              help="What Prometheus measures of each node, by the label node. NAME is cpu (cores), memory (bytes) or "
                   "bandwidth (bits per second). cpu and memory take the place of NodeMetrics. May be "
                   "given several times.")  # fmt: skip
@click.option("--audit-interval", type=click.FloatRange(0, 604800), metavar="SECONDS",
              help="Time between two audits of what placement costs, for the metrics thalweg_regret_* and the page "
                   "Regret of the view. 0: none.  [default: 900 with --observe, else 0]")  # fmt: skip
def run(
    kubeconfig: Path | None,
    context: str | None,
    listen: Address,
    probe_listen: Address | None,
    log_format: str,
    log_level: str,
    round_budget: float,
    device_timeout: float,
    feature_gates: dict[str, bool],
    records: Path | None,
    dump_directory: Path | None,
    worker_memory: str | None,
    lease: NamespacedName,
    extender_listen: Address | None,
    extender_cert: Path | None,
    extender_key: Path | None,
    extender_client_ca: Path | None,
    extender_endpoints: NamespacedName | None,
    ask_for: str,
    observes: bool,  # noqa: FBT001 - click's flags
    replicated: bool,  # noqa: FBT001
    view_listen: Address | None,
    view_cert: Path | None,
    view_key: Path | None,
    view_endpoints: NamespacedName | None,
    usage_interval: float,
    prometheus_url: str | None,
    prometheus_queries: tuple[str, ...],
    audit_interval: float | None,
) -> None:
    """Run the operator.

    The operator plans pods that name the scheduler `thalweg` and binds them. FlowSchedulingPolicy objects can select
    other pods and change how pods are placed. With --extender-listen the operator also answers kube-scheduler (see
    `thalweg scheduler-config`). The extender needs TLS with certificates on both sides, except on loopback. With
    --view-listen it shows what it does and why pods wait, to callers whose token the API server accepts and who may
    read what they ask for. With --observe it plans for whoever places the pods, and changes nothing. Ctrl-C stops the
    operator.

    \b
    Examples:
      thalweg run                                        in a cluster
      thalweg run --kubeconfig ~/.kube/config --listen 127.0.0.1:8080 --log-format text
      thalweg run --extender-listen :8443 --extender-cert s.crt --extender-key s.key --extender-client-ca ca.crt
      thalweg run --kubeconfig ~/.kube/config --context staging
      thalweg run --observe --lease kube-system/thalweg-observe --view-listen 127.0.0.1:8444
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from thalweg.run.extender import ExtenderOptions
    from thalweg.run.run import run_operator
    from thalweg.run.usage_options import usage_settings
    from thalweg.view.view_live import ViewOptions

    extender = ExtenderOptions(
        extender_listen,
        extender_cert,
        extender_key,
        extender_client_ca,
        extender_endpoints,
    )
    view = ViewOptions(view_listen, view_cert, view_key, view_endpoints)
    run_operator(
        kubeconfig,
        context,
        listen,
        probe_listen,
        log_format,
        log_level,
        round_budget,
        device_timeout,
        feature_gates,
        records,
        dump_directory,
        worker_memory,
        lease,
        extender,
        view,
        usage_settings(usage_interval, prometheus_url, prometheus_queries),
        replicated=replicated,
        observes=observes,
        marks=ask_for == options.GOVERNED,
        audit_interval=audit_interval,
    )
