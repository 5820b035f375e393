"""Flags and files of each component. Only `Layout.prepare` and `Layout.write_scheduler_config` write files."""

import json
import os
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from thalweg_controlplane.building.build import Binaries
from thalweg_controlplane.certificates import Authority
from thalweg_controlplane.client.objects import KWOK_ANNOTATION
from thalweg_controlplane.errors import ControlPlaneError

ETCD: Final = "etcd"
API_SERVER: Final = "kube-apiserver"
CONTROLLER_MANAGER: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
KWOK: Final = "kwok"

_FRONT_PROXY: Final = "front-proxy-client"
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
class Features:
    """What the components of a control plane do beside their usual work.

    Attributes:
        controller_manager: whether a controller manager runs.
        audit: whether the API server writes `Layout.audit_log`.
        scheduler_gates: feature gates of kube-scheduler, for example `GangScheduling=true`.
        gates: likewise of the API server and the controller manager.
        admission_off: admission plugins of the API server that do not run.
    """

    controller_manager: bool = True
    audit: bool = False
    scheduler_gates: Sequence[str] = ()
    gates: Sequence[str] = ()
    admission_off: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """Files and ports of one control plane."""

    workdir: Path
    ports: Ports

    @property
    def url(self) -> str:
        """URL of the API server."""
        return f"https://127.0.0.1:{self.ports.api_server}"

    @property
    def kubeconfig(self) -> Path:
        """Its user is in system:masters."""
        return self.workdir / "kubeconfig"

    @property
    def certificate(self) -> Path:
        """Self-signed certificate for 127.0.0.1. kube-apiserver makes it at its first start; all components use it."""
        return self.workdir / "certs" / "apiserver.crt"

    @property
    def certificate_key(self) -> Path:
        """Private key of `certificate`."""
        return self.workdir / "certs" / "apiserver.key"

    @property
    def front_proxy(self) -> Path:
        """Folder with the CA and the client certificate that the API server shows to API servers behind it."""
        return self.workdir / "front-proxy"

    @property
    def service_account_key(self) -> Path:
        """Key that signs and verifies service account tokens."""
        return self.workdir / "service-account.key"

    @property
    def tokens(self) -> Path:
        """File for --token-auth-file with the user of the kubeconfig."""
        return self.workdir / "tokens.csv"

    @property
    def scheduler_config(self) -> Path:
        """A KubeSchedulerConfiguration."""
        return self.workdir / "scheduler.yaml"

    @property
    def kwok_config(self) -> Path:
        """Stages and simulated usage in one file, because KWOK takes no folder."""
        return self.workdir / "kwok.yaml"

    @property
    def audit_policy(self) -> Path:
        """Which requests the API server logs."""
        return self.workdir / "audit-policy.yaml"

    @property
    def audit_log(self) -> Path:
        """A JSON line for each request of a service account, without bodies."""
        return self.workdir / "audit.log"

    def prepare(self, binaries: Binaries, scheduler_config: str | None, stages_off: Sequence[str] = ()) -> None:
        """Writes every file that the components need at their first start. `stages_off`: as for ControlPlane."""
        keygen = subprocess.run([binaries.controlplane, "keygen"], capture_output=True, text=True, check=False)  # noqa: S603 - our own argument list, no shell
        if keygen.returncode != 0:
            raise ControlPlaneError(f"{binaries.controlplane} keygen failed: {keygen.stderr}")
        _write_secret(self.service_account_key, keygen.stdout)
        token = secrets.token_hex(16)
        _write_secret(self.tokens, f'{token},admin,admin,"system:masters"\n')
        _write_secret(self.kubeconfig, self._kubeconfig(token))
        self.front_proxy.mkdir(mode=0o700, exist_ok=True)
        Authority(self.front_proxy, "ca").client(_FRONT_PROXY)
        self.write_scheduler_config(scheduler_config or DEFAULT_SCHEDULER_CONFIG)
        self.audit_policy.write_text(_AUDIT_POLICY)
        stages = [path for path in sorted(_STAGES.glob("*.yaml")) if path.stem not in stages_off]
        self.kwok_config.write_text("---\n".join(path.read_text() for path in stages))

    def write_scheduler_config(self, text: str) -> None:
        """Writes kube-scheduler's configuration; `{kubeconfig}`, quoted or not, stands for the kubeconfig's path."""
        # Not str.format: the text is YAML and may have other braces.
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
        return json.dumps(config, indent=2) + "\n"  # JSON is YAML


#: A watch is logged when it begins: it may not end before the API server does.
_AUDIT_POLICY: Final = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    userGroups: ["system:serviceaccounts"]
  - level: None
"""


def argv(component: str, layout: Layout, binaries: Binaries, features: Features) -> Sequence[str | Path]:
    """The command line of a component."""
    if component == KWOK:
        return [binaries.kwok, *_kwok(layout)]
    flags = {
        ETCD: _etcd(layout),
        API_SERVER: _api_server(layout, features, binaries.minor_version),
        CONTROLLER_MANAGER: _controller_manager(layout, features, binaries.minor_version),
        SCHEDULER: _scheduler(layout, features),
    }[component]
    return [binaries.controlplane, component, *flags]


def _etcd(layout: Layout) -> list[str]:
    return [
        f"--data-dir={layout.workdir / 'etcd'}",
        f"--client-url=http://127.0.0.1:{layout.ports.etcd}",
        f"--peer-url=http://127.0.0.1:{layout.ports.etcd_peer}",
    ]


#: The API of gangs (KEP-4671, KEP-5732), off by default: what turns it on, by minor version. 1.35 has no PodGroups.
#: kube-scheduler's own feature gates keep their defaults, so that kube-scheduler places such pods like any others and
#: Thalweg handles gangs.
_GANG_FEATURES: Final[Mapping[str, Sequence[str]]] = {
    "1.35": (),
    "1.36": (
        "--feature-gates=GenericWorkload=true,GangScheduling=true",
        "--feature-gates=TopologyAwareWorkloadScheduling=true,WorkloadAwarePreemption=true",
        "--runtime-config=scheduling.k8s.io/v1alpha2=true",
    ),
    "1.37": (
        "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true",
        "--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true",
    ),
}
#: Makes the controller manager remove the finalizer of a PodGroup without pods.
_GANG_CONTROLLER: Final = "--feature-gates=GenericWorkload=true"


def _api_server(layout: Layout, features: Features, minor_version: str) -> list[str]:
    gangs = _GANG_FEATURES[minor_version]
    # Only the controller manager creates default service accounts, removes the not-ready taint of new nodes, and
    # removes the finalizer of deleted PodGroups. Without it these admission plugins would block pods, placements and
    # deletions.
    useless = ["ServiceAccount", "TaintNodesByCondition", *(["PodGroupProtection"] if gangs else [])]
    off = [*features.admission_off, *([] if features.controller_manager else useless)]
    audit = [f"--audit-policy-file={layout.audit_policy}", f"--audit-log-path={layout.audit_log}"]
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
        # The kubernetes Service needs no endpoint on loopback, and a killed server would leave a stale one.
        "--endpoint-reconciler-type=none",
        "--max-requests-inflight=3000",
        "--max-mutating-requests-inflight=1000",
        # Some distributions have it on, OpenShift among them. It asks for more rights where an object names its owner.
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
        # For API servers behind this one, such as metrics-server: who asks, and that it is this server that says so.
        f"--proxy-client-cert-file={layout.front_proxy / _FRONT_PROXY}.crt",
        f"--proxy-client-key-file={layout.front_proxy / _FRONT_PROXY}.key",
        f"--requestheader-client-ca-file={layout.front_proxy / 'ca.crt'}",
        f"--requestheader-allowed-names={_FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        *gangs,
        *_gates(features.gates),
        *([f"--disable-admission-plugins={','.join(off)}"] if off else []),
        *(audit if features.audit else []),
    ]


def _serving(layout: Layout, port: int) -> list[str]:
    """Serving flags of controller manager and kube-scheduler. They share a certificate instead of making their own."""
    return [
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={layout.certificate}",
        f"--tls-private-key-file={layout.certificate_key}",
        "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
    ]


def _gates(gates: Sequence[str]) -> list[str]:
    return [f"--feature-gates={','.join(gates)}"] if gates else []


def _controller_manager(layout: Layout, features: Features, minor_version: str) -> list[str]:
    eager = ("deployment", "replicaset", "job", "namespace", "serviceaccount-token", "gc")
    return [
        f"--kubeconfig={layout.kubeconfig}",
        f"--service-account-private-key-file={layout.service_account_key}",
        "--leader-elect=false",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        *([_GANG_CONTROLLER] if _GANG_FEATURES[minor_version] else []),
        *_gates(features.gates),
        *(f"--concurrent-{controller}-syncs=20" for controller in eager),
        "--profiling=false",
        *_serving(layout, layout.ports.controller_manager),
    ]


def _scheduler(layout: Layout, features: Features) -> list[str]:
    gates = _gates(features.scheduler_gates)
    return [f"--config={layout.scheduler_config}", *gates, *_serving(layout, layout.ports.scheduler)]


def _kwok(layout: Layout) -> list[str]:
    return [
        f"--kubeconfig={layout.kubeconfig}",
        f"--config={layout.kwok_config}",
        f"--manage-nodes-with-annotation-selector={'='.join(KWOK_ANNOTATION)}",
        "--node-lease-duration-seconds=40",
        f"--server-address=127.0.0.1:{layout.ports.kwok}",
    ]


def _write_secret(path: Path, text: str) -> None:
    """Writes a file that only its owner can read, from its creation on."""
    with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        os.fchmod(file.fileno(), 0o600)  # the file may exist from an earlier start
        file.write(text)
