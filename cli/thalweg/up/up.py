"""``thalweg up``: a local control plane with the operator."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from thalweg_controlplane.building.cache import Step
from thalweg_controlplane.certificates import Authority
from thalweg_controlplane.client.accounts import account_token
from thalweg_controlplane.client.api import Api
from thalweg_controlplane.cluster import ControlPlane
from thalweg_controlplane.components import SCHEDULER
from thalweg_controlplane.errors import ControlPlaneError
from thalweg_controlplane.up import serve
from thalweg_controlplane.work_folders import work_folder
from thalweg_view.callers.access import AUDIENCE
from thalweg_view.web.page_files import NOT_GATHERED, read_page

from thalweg.dumps.files import DumpError
from thalweg.scheduler_config.scheduler_config import SchedulerConfig
from thalweg.terminal.consoles import stderr_console
from thalweg.terminal.progress import progress_bar
from thalweg.terminal.telling import tell_error
from thalweg.up.up_devices import CLAIMING_PODS, DeviceNodes, nodes_with_devices
from thalweg.up.up_nodes import made_up_nodes, nodes_of_dump
from thalweg.up.up_objects import OPERATOR, VIEWER, up_objects

_LOOPBACK = "127.0.0.1"

_WEB = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 30
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      schedulerName: thalweg
      containers:
        - name: web
          image: web
          resources: {requests: {cpu: 500m, memory: 256Mi}}
---
apiVersion: scheduling.thalweg/v1alpha1
kind: FlowSchedulingPolicy
metadata: {name: web}
spec:
  precedence: 10
  selects: {podSelector: {matchLabels: {app: web}}}
  cost: {weights: {leastRequested: 2}}
"""

_STEERED = """\
apiVersion: scheduling.thalweg/v1alpha1
kind: FlowSchedulingPolicy
metadata: {name: steered}
spec:
  selects: {podSelector: {matchLabels: {app: steered}}}
  delivery: Extender
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: steered}
spec:
  replicas: 20
  selector: {matchLabels: {app: steered}}
  template:
    metadata: {labels: {app: steered}}
    spec:
      schedulerName: thalweg-steered
      containers:
        - name: steered
          image: steered
          resources: {requests: {cpu: 200m, memory: 256Mi}}
"""


def run_up(count: int, dumps: tuple[str, ...], gpu_nodes: int, kubernetes_version: str) -> None:
    """Serves until Ctrl-C. A failure gives one line of error and exit code 1; an unreadable dump gives 2.

    Args:
        count: of made-up nodes, where there is no dump.
        dumps: files with the nodes to simulate.
        gpu_nodes: how many nodes come beside these, whose GPUs are claimed.
        kubernetes_version: of the control plane, such as 1.36.
    """
    try:
        nodes = nodes_of_dump(dumps) if dumps else made_up_nodes(count)
    except DumpError as error:
        tell_error(error)
        sys.exit(2)
    devices = nodes_with_devices(gpu_nodes, {each["metadata"]["name"] for each in nodes})
    with work_folder("thalweg-certificates-") as folder:
        _serve(nodes, devices, folder, kubernetes_version)


def _serve(nodes: Sequence[Mapping[str, Any]], devices: DeviceNodes, folder: Path, kubernetes_version: str) -> None:
    port, extender, view = _free_port(), f"{_LOOPBACK}:{_free_port()}", f"{_LOOPBACK}:{_free_port()}"
    authority = Authority(folder, "ca")
    server, client = authority.server("thalweg", _LOOPBACK), authority.client(SCHEDULER)
    operator = [
        *(sys.executable, "-m", "thalweg", "run", "--kubeconfig", "{kubeconfig}"),
        *("--listen", f"{_LOOPBACK}:{port}", "--log-format", "text"),
        *("--extender-listen", extender, "--extender-cert", str(server.certificate), "--extender-key", str(server.key)),
        *("--extender-client-ca", str(authority.certificate), "--view-listen", view),
    ]
    config = SchedulerConfig(
        url=f"https://{extender}/extender",
        kubeconfig="{kubeconfig}",
        qps=5000,
        leader_elect=False,
        authority=authority.certificate.read_bytes(),
        client_certificate=str(client.certificate),
        client_key=str(client.key),
    )

    async def welcome(plane: ControlPlane, api: Api) -> Sequence[str]:
        web = plane.workdir / "web.yaml"
        web.write_text(_WEB)
        steered = plane.workdir / "steered.yaml"
        steered.write_text(_STEERED)
        claiming = plane.workdir / "claiming.yaml"
        if devices.nodes:
            claiming.write_text(CLAIMING_PODS)
        token = await account_token(api, *VIEWER, audiences=(AUDIENCE,))
        return (
            *_page_lines(f"http://{view}", token),
            "Things to try:",
            f"  kubectl apply -f {web}   # 30 pods that name the scheduler thalweg, and a policy for them",
            f"  kubectl apply -f {steered}   # 20 pods that Thalweg plans and kube-scheduler binds",
            *_claiming_lines(claiming),
            "  kubectl get pods -o wide && kubectl get fsp   # see their nodes; scale to 500 to see why some wait",
            f"  thalweg why NAME --server http://{view}   # why a pod waits, and what would place it",
            f"  thalweg doctor --server http://{view}   # whether all of this works",
            f"  curl -s http://{_LOOPBACK}:{port}/metrics | grep ^thalweg",
        )

    try:
        with _reporting() as report:
            asyncio.run(
                serve(
                    report,
                    nodes=[*nodes, *devices.nodes],
                    objects=[*up_objects(str(config), kubernetes_version), *devices.objects],
                    scheduler_config=str(config),
                    start_operator=operator,
                    account=OPERATOR,
                    welcome=welcome,
                    minor_version=kubernetes_version,
                )
            )
    except ControlPlaneError as error:
        tell_error(error)
        sys.exit(1)


def _page_lines(url: str, token: str) -> tuple[str, ...]:
    if not read_page():
        return (f"No page: {NOT_GATHERED}",)
    # A browser does not send what stands behind the #.
    return (
        "What Thalweg does, as a page. Whoever has this address may look, from this machine:",
        f"  {url}/#token={token}",
    )


def _claiming_lines(path: Path) -> tuple[str, ...]:
    """What to try with devices, where there are some."""
    if not path.exists():
        return ()
    return (f"  kubectl apply -f {path}   # 2 pods that claim two GPUs of one NVLink domain each",)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _reporting() -> Iterator[Callable[[str], None]]:
    """Takes lines. On a terminal the steps of a build are a bar with an estimate, elsewhere they are lines too."""
    console = stderr_console()
    bar = progress_bar(console)
    task = bar.add_task("")

    def report(line: str) -> None:
        if not console.is_terminal or not isinstance(line, Step):
            if bar.live.is_started:  # to stop a bar writes an empty line
                bar.stop()
            click.echo(line, err=True)
            return
        if bar.tasks[0].description != line.what:
            bar.reset(task, description=line.what)
        bar.update(task, completed=line.done, total=line.total or None)
        bar.start()

    try:
        yield report
    finally:
        if bar.live.is_started:
            bar.stop()
