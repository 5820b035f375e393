"""A real Kubernetes control plane as child processes, without containers, for tests, benchmarks and `thalweg up`.

`build` builds one Go binary and caches it. `cluster.ControlPlane` runs etcd, kube-apiserver, kube-scheduler and
kube-controller-manager from it, with KWOK for the kubelets. `oracle.Oracle` asks kube-scheduler's own
filters and its preemption. `tools.find_or_build_tool` builds tools such as Helm in the same way.
Nothing in Thalweg's scheduler imports this package.
"""

from thalweg_controlplane.api import Api
from thalweg_controlplane.build import Binaries, find_or_build
from thalweg_controlplane.cluster import ControlPlane
from thalweg_controlplane.errors import ApiError, BuildError, ComponentFailed, ControlPlaneError, OracleError
from thalweg_controlplane.oracle import Oracle, OracleDecision, OracleVerdict
from thalweg_controlplane.tools import find_or_build_tool

__all__ = [
    "Api",
    "ApiError",
    "Binaries",
    "BuildError",
    "ComponentFailed",
    "ControlPlane",
    "ControlPlaneError",
    "Oracle",
    "OracleDecision",
    "OracleError",
    "OracleVerdict",
    "find_or_build",
    "find_or_build_tool",
]
