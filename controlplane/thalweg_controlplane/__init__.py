"""A real Kubernetes control plane as child processes, without containers, for tests, benchmarks and `thalweg up`.

`building.build` builds one Go binary and caches it. `cluster.ControlPlane` runs etcd, kube-apiserver,
kube-scheduler and kube-controller-manager from it, with KWOK for the kubelets. `oracle.Oracle` asks
kube-scheduler's own filters and its preemption. `building.tools.find_or_build_tool` builds tools such as Helm
in the same way.
Nothing in Thalweg's scheduler imports this package.

A name is imported when it is first used: `thalweg plan` wants `processes` alone, and no HTTP client.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thalweg_controlplane.building.build import Binaries, find_or_build
    from thalweg_controlplane.building.tools import find_or_build_tool
    from thalweg_controlplane.client.api import Api
    from thalweg_controlplane.cluster import ControlPlane
    from thalweg_controlplane.errors import ApiError, BuildError, ComponentFailed, ControlPlaneError, OracleError
    from thalweg_controlplane.oracle import (
        Oracle,
        OracleDecision,
        OracleDevices,
        OracleSelection,
        OracleVerdict,
    )

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
    "OracleDevices",
    "OracleError",
    "OracleSelection",
    "OracleVerdict",
    "find_or_build",
    "find_or_build_tool",
]

_MODULES = {
    "Api": "client.api",
    "Binaries": "building.build",
    "ControlPlane": "cluster",
    "Oracle": "oracle",
    "OracleDecision": "oracle",
    "OracleDevices": "oracle",
    "OracleSelection": "oracle",
    "OracleVerdict": "oracle",
    "find_or_build": "building.build",
    "find_or_build_tool": "building.tools",
}


def __getattr__(name: str) -> object:
    """One of the names above, from its module."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)
