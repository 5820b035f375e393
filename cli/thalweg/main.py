"""The command line. Each command imports what it needs when it runs, so that help is instant."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import click

from thalweg.option_types import HOST_PORT, Address


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("thalweg"), prog_name="thalweg")
def main() -> None:
    """Thalweg: the Kubernetes scheduler that looks at all waiting pods at once.

    \b
    Examples:
      thalweg demo                                   what it does, without a cluster
      kubectl get nodes,pods,namespaces -A -o json > now.json      (thalweg simulate --help: storage, policies, gangs)
      thalweg simulate -f now.json                   where it would put what waits in yours
      thalweg explain -f now.json                    which nodes each waiting pod may use, and why not the others
      thalweg up                                     a local control plane to play with
      thalweg run --kubeconfig ~/.kube/config        the operator itself
      thalweg scheduler-config                       how kube-scheduler is told to ask it
    """  # noqa: D301 - click's mark for "leave these lines as they are"


@main.command()
@click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=Path),
              help="Cluster to work on. Default: what KUBECONFIG names, else the pod's service account.")  # fmt: skip
@click.option("--context", metavar="NAME", help="Context of the kubeconfig. Default: its current context.")
@click.option("--listen", type=HOST_PORT, default="0.0.0.0:8080", show_default=True,
              help="Where /healthz, /readyz and /metrics are served.")  # fmt: skip
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.option("--round-budget", default=0.3, show_default=True, type=click.FloatRange(0, 30), metavar="SECONDS",
              help="How long a round goes on looking for a better plan.")  # fmt: skip
@click.option("--record", "records", type=click.Path(file_okay=False, path_type=Path),
              help="Folder to keep the last 20 rounds in, for `thalweg replay`.")  # fmt: skip
@click.option("--extender-listen", type=HOST_PORT,
              help="Serve kube-scheduler's extender here, for delivery Extender; nowhere unless given.")  # fmt: skip
@click.option("--extender-cert", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="The extender's certificate (PEM). Read again when it changes, like the next two.")  # fmt: skip
@click.option("--extender-key", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Its private key (PEM).")  # fmt: skip
@click.option("--extender-client-ca", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="CA (PEM) that the certificate of whoever asks must be signed by.")  # fmt: skip
@click.option("--extender-insecure", is_flag=True,
              help="Answer everybody who reaches --extender-listen, on any address, without TLS too.")  # fmt: skip
@click.option("--lease", default="kube-system/thalweg", show_default=True, metavar="NAMESPACE/NAME",
              help="Lease that is held while the operator works; one for each cluster.")  # fmt: skip
@click.option("--replicated", is_flag=True, help="Wait as a standby while another process holds the lease.")
@click.option("--worker-memory", metavar="QUANTITY",
              help="Memory that the planning process may use, such as 4Gi; 0: no limit.  "
                   "[default: half of the container's limit]")  # fmt: skip
@click.option("--extender-bind", is_flag=True, help="Serve the extender's bind verb too (scheduler-config --bind).")
@click.option("--extender-endpoints", metavar="NAMESPACE/SERVICE",
              help="Service that is to lead to this pod while it leads; the pod's address is in POD_IP.")  # fmt: skip
def run(
    kubeconfig: Path | None,
    context: str | None,
    listen: Address,
    log_format: str,
    log_level: str,
    round_budget: float,
    records: Path | None,
    worker_memory: str | None,
    lease: str,
    extender_listen: Address | None,
    extender_cert: Path | None,
    extender_key: Path | None,
    extender_client_ca: Path | None,
    extender_insecure: bool,  # noqa: FBT001 - click's flags
    extender_bind: bool,  # noqa: FBT001
    extender_endpoints: str | None,
    replicated: bool,  # noqa: FBT001
) -> None:
    """Run the operator: snapshot, rounds, binder, and kube-scheduler's extender.

    Pods that name the scheduler `thalweg` are placed; FlowSchedulingPolicy objects say more. With --extender-listen
    kube-scheduler is answered too (`thalweg scheduler-config`): by TLS, with certificates on both sides; plain HTTP is
    for loopback, or --extender-insecure. Ctrl-C stops it.

    \b
    Examples:
      thalweg run                                        in a cluster
      thalweg run --kubeconfig ~/.kube/config --listen 127.0.0.1:8080 --log-format text
      thalweg run --extender-listen :8443 --extender-cert s.crt --extender-key s.key --extender-client-ca ca.crt
      thalweg run --kubeconfig ~/.kube/config --context staging
    """  # noqa: D301
    from thalweg.extender import ExtenderOptions
    from thalweg.run import run_operator

    extender = ExtenderOptions(
        extender_listen,
        extender_cert,
        extender_key,
        extender_client_ca,
        extender_insecure,
        extender_bind,
        extender_endpoints,
    )
    run_operator(
        kubeconfig,
        context,
        listen,
        log_format,
        log_level,
        round_budget,
        records,
        worker_memory,
        lease,
        extender,
        replicated=replicated,
    )


@main.command()
@click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=Path),
              help="Cluster to work on. Default: what KUBECONFIG names, else the pod's service account.")  # fmt: skip
@click.option("--context", metavar="NAME", help="Context of the kubeconfig. Default: its current context.")
@click.option("--lease", default="kube-system/thalweg", show_default=True, metavar="NAMESPACE/NAME",
              help="Lease of the operator; it is held meanwhile, so that none starts.")  # fmt: skip
@click.option("--policies", is_flag=True, help="Delete all FlowSchedulingPolicies too.")
@click.option("--force", is_flag=True, help="Take the lease from an operator that runs; it ends.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def uninstall(
    kubeconfig: Path | None,
    context: str | None,
    lease: str,
    policies: bool,  # noqa: FBT001 - click's flags
    force: bool,  # noqa: FBT001
    yes: bool,  # noqa: FBT001
    output: str,
) -> None:
    """Remove Thalweg's admission policies from a cluster and open its scheduling gates, so that no pod stays stuck.

    Stop the operator first: with one that runs, nothing is changed and the exit code is 1. Run it again where it was
    interrupted. Deployments, the CRD and roles are left to what installed them.

    \b
    Examples:
      thalweg uninstall --kubeconfig ~/.kube/config
      thalweg uninstall --kubeconfig ~/.kube/config --yes --policies -o json
    """  # noqa: D301
    from thalweg.uninstall import run_uninstall

    run_uninstall(kubeconfig, context, lease, output, policies=policies, force=force, confirmed=yes)


@main.command("scheduler-config")
@click.option("--url", default="https://thalweg.thalweg-system:8443/extender", show_default=True,
              help="The extender, as kube-scheduler reaches it.")  # fmt: skip
@click.option("--kubeconfig-path", default="/etc/kubernetes/scheduler.conf", show_default=True, metavar="PATH",
              help="kube-scheduler's own kubeconfig, where kube-scheduler runs.")  # fmt: skip
@click.option("--ignorable", is_flag=True,
              help="Without Thalweg, schedule all pods as if there were no plan; else none.")  # fmt: skip
@click.option("--scheduler-name", default="thalweg-steered", show_default=True, metavar="NAME",
              help="What steered pods name.")  # fmt: skip
@click.option("--node-sample", default=1, show_default=True, type=click.IntRange(1, 100), metavar="PERCENT",
              help="Nodes that an attempt at a steered pod looks for; 100 for steering: Prefer.")  # fmt: skip
@click.option("--bind", is_flag=True, help="Leave the binding of all pods to Thalweg (run --extender-bind).")
@click.option("--beside", is_flag=True,
              help="For a second kube-scheduler that serves steered pods alone.")  # fmt: skip
@click.option("--ca-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="CA (PEM) that the extender's certificate is verified with; it is printed.")  # fmt: skip
@click.option("--client-cert-file", default="", metavar="PATH",
              help="kube-scheduler's certificate for the extender (PEM), where kube-scheduler runs.")  # fmt: skip
@click.option("--client-key-file", default="", metavar="PATH",
              help="Its private key (PEM), where kube-scheduler runs.")  # fmt: skip
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
    """Print the configuration with which kube-scheduler asks Thalweg where pods go (delivery Extender).

    Pods that name the scheduler `thalweg-steered` get a profile of their own; all others are scheduled as before. The
    file's comments say what each line does; docs/how-to/connect-kube-scheduler.md says where it goes.

    \b
    Examples:
      thalweg scheduler-config --ca-file ca.crt --client-cert-file /etc/thalweg.crt --client-key-file /etc/thalweg.key
      thalweg scheduler-config --ca-file ca.crt --url https://10.96.14.7:8443/extender --ignorable
      thalweg scheduler-config --url http://127.0.0.1:8081/extender --node-sample 100    # for steering: Prefer
    """  # noqa: D301
    from thalweg.scheduler_config import SchedulerConfig, holds_certificate

    scheme = url.partition("://")[0]
    if scheme not in ("http", "https"):
        raise click.BadParameter(f'"{url}" is not an http or https URL', param_hint="--url")
    if (scheme == "https") != (ca_file is not None):
        raise click.UsageError(
            "--ca-file and an https --url need each other: kube-scheduler verifies by that file alone"
        )
    if bool(client_cert_file) != bool(client_key_file):
        raise click.UsageError("--client-cert-file and --client-key-file need each other")
    if client_cert_file and scheme == "http":
        raise click.UsageError("--client-cert-file needs an https --url")
    authority = ca_file.read_bytes() if ca_file else b""
    if ca_file and not holds_certificate(authority):
        raise click.BadParameter(f'"{ca_file}" holds no certificate in PEM', param_hint="--ca-file")
    if scheduler_name in ("default-scheduler", "thalweg"):
        problem = "has a profile already" if scheduler_name == "default-scheduler" else "is bound by Thalweg itself"
        raise click.BadParameter(f'"{scheduler_name}" {problem}', param_hint="--scheduler-name")
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


@main.command()
@click.argument("record", type=click.Path(dir_okay=False, path_type=Path))
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def replay(record: Path, output: str) -> None:
    """Play a round again that `thalweg run --record` kept, and say whether it gives the same plan.

    Exit code 1: it does not. 2: the file cannot be read.

    \b
    Examples:
      thalweg replay rounds/round-20261122T101502123456Z-000000042.msgpack
      thalweg replay rounds/round-20261122T101502123456Z-000000042.msgpack -o json
    """  # noqa: D301
    from thalweg.replay import run_replay

    run_replay(record, output)


@main.command()
@click.option("-f", "--filename", "files", multiple=True, required=True, metavar="FILE",
              help="JSON or YAML as kubectl prints it; - for standard input. May be given several times.")  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def simulate(files: tuple[str, ...], output: str) -> None:
    """Plan the pending pods of a cluster dump, without touching any cluster.

    Pending pods are planned, whatever scheduler they name. Some are not, and are listed with the reason: pods behind
    scheduling gates, pods with resource claims, and pods with volume claims unless a FlowSchedulingPolicy with
    delivery: Extender governs them. Policies in the dump govern as in a cluster; a policy that the API server would
    refuse is an error.

    This dumps a cluster. Add ,fsp and ,podgroups where it has these kinds, ,deviceclasses where pods ask for devices:

    \b
      kubectl get nodes,pods,namespaces,pvc,pv,sc,csinodes,csidrivers,csistoragecapacities,volumeattachments \\
        -A -o json > now.json

    Kinds that are not read, and objects that the plan needs and the files lack, are told on standard error and in the
    JSON's warnings. An object in a later file replaces that of an earlier one.

    Exit code 2: a file cannot be read, is no dump of a cluster, or has two versions of an object.

    \b
    Examples:
      thalweg simulate -f now.json
      kubectl get nodes,pods,namespaces,fsp -A -o yaml | thalweg simulate -f - -o json
      thalweg simulate -f now.json -f new-pods.yaml
    """  # noqa: D301
    from thalweg.simulate import run_simulation

    run_simulation(files, output)


@main.command()
@click.option("--all", "every", is_flag=True, help="Show all scenes, not only the first five.")
def demo(every: bool) -> None:  # noqa: FBT001 - click's flags
    """Show what planning all pods at once gains, on built-in scenes.

    Needs no cluster and takes a few seconds. Each scene is planned by Thalweg and one by one, side by side, and ends
    with a line of what was gained, computed from the scene's own table.

    \b
    Examples:
      thalweg demo
      thalweg demo --all
    """  # noqa: D301
    from thalweg.demo.show import show

    show(every=every)


@main.command()
@click.argument("pods", nargs=-1, metavar="[NAMESPACE/POD]...")
@click.option("-f", "--filename", "files", multiple=True, required=True, metavar="FILE",
              help="JSON or YAML as kubectl prints it; - for standard input. May be given several times.")  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def explain(pods: tuple[str, ...], files: tuple[str, ...], output: str) -> None:
    """Say for each waiting pod of a cluster dump which nodes it may use, and why not the others.

    The verdicts are those of kube-scheduler's filters for the state as it stands, no other waiting pod placed first.
    Pods named are shown node by node; without a name every waiting pod is shown in a line.

    This dumps a cluster. Add ,fsp and ,podgroups where it has these kinds, ,deviceclasses where pods ask for devices:

    \b
      kubectl get nodes,pods,namespaces,pvc,pv,sc,csinodes,csidrivers,csistoragecapacities,volumeattachments \\
        -A -o json > now.json

    Kinds that are not read, and objects that verdicts need and the files lack, are told on standard error.

    Exit code 2: a file cannot be read, is no dump of a cluster, or has no such pod that waits.

    \b
    Examples:
      thalweg explain -f now.json
      kubectl get nodes,pods,namespaces -A -o json | thalweg explain -f -
      thalweg explain shop/cart-0 -f now.json
      thalweg explain -f now.json -o json
    """  # noqa: D301
    from thalweg.explain import run_explanation

    run_explanation(pods, files, output)


@main.command()
@click.option("--nodes", default=5, show_default=True, type=click.IntRange(1, 5000), help="How many simulated nodes.")
def up(nodes: int) -> None:
    """Start a real local control plane with simulated nodes and this operator. Ctrl-C stops it.

    etcd, kube-apiserver, kube-scheduler and kube-controller-manager run on loopback; KWOK plays the kubelets. The first
    start builds them from source (6 to 15 minutes on two cores), later ones take seconds.

    \b
    Examples:
      thalweg up
      thalweg up --nodes 50
    """  # noqa: D301
    from thalweg.up import run_up

    run_up(nodes)
