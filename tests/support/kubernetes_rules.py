"""The version of Kubernetes by whose rules tests read objects: that of the oracle that they compare with."""

from collections.abc import Iterator
from contextlib import contextmanager

from thalweg_controlplane import Api
from thalweg_controlplane.building.build import MINOR_VERSION

from flowcore.model.kubernetes_version import KubernetesVersion

_in_force = [KubernetesVersion(MINOR_VERSION)]


def rules_in_force() -> KubernetesVersion:
    """Those of the default version, unless a test compares with another."""
    return _in_force[-1]


@contextmanager
def rules_of(minor_version: str) -> Iterator[None]:
    """Objects are read by the rules of this version meanwhile, such as 1.37."""
    _in_force.append(KubernetesVersion(minor_version))
    try:
        yield
    finally:
        _in_force.pop()


async def serves_gates(api: Api) -> bool:
    """Whether the API server serves the kinds by which it can gate pods."""
    return KubernetesVersion((await api.get("/version"))["gitVersion"]).has_mutating_policies
