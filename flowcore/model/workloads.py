"""Workloads: pods that one gang or one controller makes alike, and the names that people know them by."""

from __future__ import annotations

from flowcore.model.pods import Pod
from flowcore.model.selectors import value_of

#: Label of a pod whose ReplicaSet a Deployment made: the end of the ReplicaSet's name.
_TEMPLATE_HASH = "pod-template-hash"


def workload_of(pod: Pod) -> str:
    """The workload of a pod: its gang, else its controller, else itself.

    Returns:
        ``kind/namespace/name`` with the kind in lower case, as `thalweg why` takes it: ``gang/ml/train``,
        ``deployment/shop/web``, ``job/ci/nightly``, ``pod/shop/once``.
    """
    if pod.gang is not None:
        return f"gang/{pod.namespace}/{pod.gang.key.name}"
    return controller_of(pod) or f"pod/{pod.key}"


def controller_of(pod: Pod) -> str:
    """The controller of a pod as ``kind/namespace/name``; a Deployment for its ReplicaSet's pods; "" without one."""
    kind, _, name = pod.controller.partition("/")
    if not name:
        return ""
    template = value_of(pod.labels, _TEMPLATE_HASH)
    if kind == "ReplicaSet" and template and name.endswith(f"-{template}"):
        kind, name = "Deployment", name.removesuffix(f"-{template}")
    return f"{kind.lower()}/{pod.namespace}/{name}"
