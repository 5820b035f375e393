"""A Service that leads to the view of an operator of this machine, as the chart's does, and people who may use it."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from support.rights import token
from thalweg_controlplane import Api, ApiError, ControlPlane
from thalweg_controlplane.client.objects import pod

NAMESPACE, NAME, PORT = "thalweg-system", "thalweg-view", 443
LABELS = {"app.kubernetes.io/name": "thalweg", "app.kubernetes.io/component": "view"}
_RBAC = "rbac.authorization.k8s.io"


def own_address() -> str:
    """An address of this machine that is not loopback: the API server's proxy leads to no other.

    Nothing is sent: a UDP socket that is connected knows the address that it would send from.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("192.0.2.1", 9))  # kept for documentation (RFC 5737): nobody is there
        return str(sock.getsockname()[0])


@asynccontextmanager
async def leading_to(api: Api, address: str, port: int) -> AsyncIterator[None]:
    """A Service, and the pod that the API server's proxy wants behind it.

    The proxy reads Endpoints, and takes addresses of pods only.
    """
    metadata = {"name": NAME, "namespace": NAMESPACE, "labels": LABELS}
    ports = [{"name": "https", "port": PORT, "protocol": "TCP"}]
    await api.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}})
    await api.create(pod("view", namespace=NAMESPACE, scheduler="nobody", nodeName="elsewhere"))
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/view"
    await api.patch(f"{path}/status", {"status": {"podIP": address, "podIPs": [{"ip": address}]}})
    of_pod = {"kind": "Pod", "name": "view", "namespace": NAMESPACE}
    subset = {"addresses": [{"ip": address, "targetRef": of_pod}], "ports": [{"name": "https", "port": port}]}
    endpoints = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": [subset]}
    await api.replace(f"/api/v1/namespaces/{NAMESPACE}/endpoints/{NAME}", endpoints)
    try:
        yield
    finally:
        await api.delete(path, gracePeriodSeconds="0")
        # With its Endpoints: another module may share the control plane, and want Endpoints of its own Service.
        try:
            await api.delete(f"/api/v1/namespaces/{NAMESPACE}/services/{NAME}")
        except ApiError as error:
            if error.status != 404:
                raise


async def allow(api: Api, account: str, *, namespace: str, rules: list[dict[str, Any]], name: str) -> None:
    """Gives an account of thalweg-system a role in a namespace; the account is made where there is none."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
    metadata = {"name": name, "namespace": namespace}
    for each in (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": NAMESPACE}},
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
            "subjects": [subject],
        },
    ):
        await api.apply(each)


PODS = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
PROXY = [
    {
        "apiGroups": [""],
        "resources": ["services/proxy"],
        "resourceNames": [NAME, f"https:{NAME}:{PORT}", f"https:{NAME}:https"],
        "verbs": ["get", "create"],
    }
]


#: What the chart's account thalweg-viewer may list.
VIEWED = [
    {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["list"]},
    {"apiGroups": ["scheduling.thalweg"], "resources": ["flowschedulingpolicies", "flowqueues"], "verbs": ["list"]},
]


def tokens_of(account: str) -> dict[str, Any]:
    """The rule that lets people make tokens of an account."""
    resources = ["serviceaccounts/token"]
    return {"apiGroups": [""], "resources": resources, "resourceNames": [account], "verbs": ["create"]}


async def make_viewer(api: Api) -> None:
    """The account that the chart makes for people without one."""
    name = "thalweg-viewer"
    metadata, ref = {"name": name}, {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name}
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}]
    version = f"{_RBAC}/v1"
    await api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**metadata, "namespace": NAMESPACE}})
    await api.apply({"apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": VIEWED})
    binding = {"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": metadata, "roleRef": ref}
    await api.apply({**binding, "subjects": subjects})


def kubeconfig_of(plane: ControlPlane, path: Path, user: dict[str, Any], namespace: str = "") -> Path:
    """The plane's kubeconfig with another user, and with a namespace in its context."""
    config: dict[str, Any] = yaml.safe_load(plane.kubeconfig.read_text())
    config["users"][0]["user"] = user
    if namespace:
        config["contexts"][0]["context"]["namespace"] = namespace
    path.write_text(json.dumps(config))
    return path


async def account_kubeconfig(plane: ControlPlane, api: Api, path: Path, account: str, namespace: str) -> Path:
    """A kubeconfig of an account of thalweg-system."""
    return kubeconfig_of(plane, path, {"token": await token(api, 3600, account)}, namespace)
