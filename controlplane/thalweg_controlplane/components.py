"""How each component is started: its flags and the files it reads. Only `Layout.prepare` writes anything."""

import json
import os
import secrets
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from thalweg_controlplane.build import Binaries
from thalweg_controlplane.errors import ControlPlaneError
from thalweg_controlplane.objects import KWOK_ANNOTATION

ETCD: Final = "etcd"
API_SERVER: Final = "kube-apiserver"
CONTROLLER_MANAGER: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
KWOK: Final = "kwok"

_STAGES: Final = Path(__file__).parent / "stages"

DEFAULT_SCHEDULER_CONFIG: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
clientConnection:
  kubeconfig: {kubeconfig}
  # The default throttles the scheduler to 50 requests a second.
  qps: 10000
  burst: 10000
"""


@dataclass(frozen=True, slots=True)
class Ports:
    """One loopback port for each listener. They stay the same when a component is restarted."""

    etcd: int
    etcd_peer: int
    api_server: int
    controller_manager: int
    scheduler: int
    kwok: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Where one control plane keeps its files, and on which ports it listens."""

    workdir: Path
    ports: Ports

    @property
    def url(self) -> str:
        """Of the API server."""
        return f"https://127.0.0.1:{self.ports.api_server}"

    @property
    def kubeconfig(self) -> Path:
        """Its user is in system:masters."""
        return self.workdir / "kubeconfig"

    @property
    def certificate(self) -> Path:
        """kube-apiserver makes it, self-signed for 127.0.0.1, at its first start; every component serves with it."""
        return self.workdir / "certs" / "apiserver.crt"

    @property
    def certificate_key(self) -> Path:
        """Beside it."""
        return self.workdir / "certs" / "apiserver.key"

    @property
    def service_account_key(self) -> Path:
        """Signs and verifies service account tokens."""
        return self.workdir / "service-account.key"

    @property
    def tokens(self) -> Path:
        """For --token-auth-file: the one user of the kubeconfig."""
        return self.workdir / "tokens.csv"

    @property
    def scheduler_config(self) -> Path:
        """A KubeSchedulerConfiguration."""
        return self.workdir / "scheduler.yaml"

    @property
    def kwok_config(self) -> Path:
        """All Stages in one file: KWOK takes no folder."""
        return self.workdir / "kwok.yaml"

    def prepare(self, binaries: Binaries, scheduler_config: str | None) -> None:
        """Writes every file that must be there before the first component starts."""
        made = subprocess.run([binaries.controlplane, "keygen"], capture_output=True, text=True, check=False)  # noqa: S603 - our own argument list, no shell
        if made.returncode != 0:
            raise ControlPlaneError(f"{binaries.controlplane} keygen failed: {made.stderr}")
        _write_secret(self.service_account_key, made.stdout)
        token = secrets.token_hex(16)
        _write_secret(self.tokens, f'{token},admin,admin,"system:masters"\n')
        _write_secret(self.kubeconfig, self._kubeconfig(token))
        self.write_scheduler_config(scheduler_config or DEFAULT_SCHEDULER_CONFIG)
        self.kwok_config.write_text("---\n".join(path.read_text() for path in sorted(_STAGES.glob("*.yaml"))))

    def write_scheduler_config(self, text: str) -> None:
        """`{kubeconfig}` in it, quoted or not, stands for the path of ours."""
        # Not str.format: the text is YAML and may hold braces of its own.
        path = json.dumps(str(self.kubeconfig))
        self.scheduler_config.write_text(text.replace('"{kubeconfig}"', path).replace("{kubeconfig}", path))

    def _kubeconfig(self, token: str) -> str:
        name = "thalweg"
        cluster = {"server": self.url, "certificate-authority": str(self.certificate)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
        return json.dumps(config, indent=2) + "\n"  # which is YAML too


def argv(component: str, layout: Layout, binaries: Binaries, *, controller_manager: bool) -> Sequence[str | Path]:
    """The command line of one component; `controller_manager` says whether that one runs in this control plane."""
    if component == KWOK:
        return [binaries.kwok, *_kwok(layout)]
    flags = {
        ETCD: _etcd(layout),
        API_SERVER: _api_server(layout, controller_manager=controller_manager),
        CONTROLLER_MANAGER: _controller_manager(layout),
        SCHEDULER: _scheduler(layout),
    }[component]
    return [binaries.controlplane, component, *flags]


def _etcd(layout: Layout) -> list[str]:
    return [
        f"--data-dir={layout.workdir / 'etcd'}",
        f"--client-url=http://127.0.0.1:{layout.ports.etcd}",
        f"--peer-url=http://127.0.0.1:{layout.ports.etcd_peer}",
    ]


#: The API of gangs (KEP-4671, KEP-5732): off by default in Kubernetes 1.36. kube-scheduler's own gates stay as they
#: are: it is to place such pods like any others, and leave gangs to us.
_GANG_API: Final = (
    "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true",
    "--runtime-config=scheduling.k8s.io/v1alpha2=true",
)
#: It takes the finalizer off a PodGroup that no pod names any more.
_GANG_UPKEEP: Final = "--feature-gates=GenericWorkload=true"


def _api_server(layout: Layout, *, controller_manager: bool) -> list[str]:
    # Nobody makes the default service account, takes the not-ready taint off a new node or lets go of a PodGroup that
    # is deleted, but the controller manager: without it no pod could be created, none be placed, no PodGroup go.
    plugins = "ServiceAccount,TaintNodesByCondition,PodGroupProtection"
    useless = [] if controller_manager else [f"--disable-admission-plugins={plugins}"]
    return [
        f"--etcd-servers=http://127.0.0.1:{layout.ports.etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={layout.ports.api_server}",
        f"--cert-dir={layout.certificate.parent}",
        f"--token-auth-file={layout.tokens}",
        "--authorization-mode=RBAC",
        f"--service-account-key-file={layout.service_account_key}",
        f"--service-account-signing-key-file={layout.service_account_key}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--service-cluster-ip-range=10.96.0.0/16",
        # The kubernetes Service has no use for an endpoint on loopback, and a killed server would leave it stale.
        "--endpoint-reconciler-type=none",
        "--max-requests-inflight=3000",
        "--max-mutating-requests-inflight=1000",
        "--profiling=false",
        *_GANG_API,
        *useless,
    ]


def _serving(layout: Layout, port: int) -> list[str]:
    """For the two that serve health and metrics; one certificate for all saves each of them making its own."""
    return [
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={layout.certificate}",
        f"--tls-private-key-file={layout.certificate_key}",
        "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
    ]


def _controller_manager(layout: Layout) -> list[str]:
    eager = ("deployment", "replicaset", "job", "namespace", "serviceaccount-token", "gc")
    return [
        f"--kubeconfig={layout.kubeconfig}",
        f"--service-account-private-key-file={layout.service_account_key}",
        "--leader-elect=false",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        _GANG_UPKEEP,
        *(f"--concurrent-{controller}-syncs=20" for controller in eager),
        "--profiling=false",
        *_serving(layout, layout.ports.controller_manager),
    ]


def _scheduler(layout: Layout) -> list[str]:
    return [f"--config={layout.scheduler_config}", *_serving(layout, layout.ports.scheduler)]


def _kwok(layout: Layout) -> list[str]:
    return [
        f"--kubeconfig={layout.kubeconfig}",
        f"--config={layout.kwok_config}",
        f"--manage-nodes-with-annotation-selector={'='.join(KWOK_ANNOTATION)}",
        "--node-lease-duration-seconds=40",
        f"--server-address=127.0.0.1:{layout.ports.kwok}",
    ]


def _write_secret(path: Path, text: str) -> None:
    """Writes a file that its owner alone can read, at no moment anybody else."""
    with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        os.fchmod(file.fileno(), 0o600)  # the file may be there from an earlier start
        file.write(text)
