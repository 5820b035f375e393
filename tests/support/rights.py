"""The rights that rights/ gives the operator's account, and that account's token."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from support.audit import audited
from support.kubernetes_rules import serves_gates
from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.client.objects import object_path

RIGHTS = Path(__file__).parents[2] / "rights"
#: Operators of tests take leases of their own: no test waits for the lease of one that was killed to end.
_OWN_LEASES: tuple[dict[str, Any], ...] = (
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "leases-of-tests", "namespace": "kube-system"},
        "rules": [
            {
                "apiGroups": ["coordination.k8s.io"],
                "resources": ["leases"],
                "verbs": ["get", "create", "patch", "update", "watch"],
            },
            # What classes of pods use is beside the lease.
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "patch"]},
        ],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "leases-of-tests", "namespace": "kube-system"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "leases-of-tests"},
        "subjects": [{"kind": "ServiceAccount", "name": "thalweg", "namespace": "thalweg-system"}],
    },
)
_GATE_KINDS = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
ACCOUNTS = "/api/v1/namespaces/thalweg-system/serviceaccounts"
#: Bindings that a new cluster has: they let every account read which kinds it serves.
DISCOVERY = tuple(
    f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:{name}"
    for name in ("discovery", "basic-user", "public-info-viewer")
)


class Right(NamedTuple):
    """One verb on one resource.

    Attributes:
        name: of the only object that it is about; "" for all.
        namespace: of the only objects that it is about; "" for all.
    """

    verb: str
    group: str
    resource: str
    name: str = ""
    namespace: str = ""


def manifests(stem: str) -> list[dict[str, Any]]:
    """All objects of a file of rights/."""
    return list(yaml.safe_load_all((RIGHTS / f"{stem}.yaml").read_text()))


def files() -> list[str]:
    """Names of the files of rights/, without their ends, of an operator that does not only observe."""
    return sorted(path.stem for path in RIGHTS.glob("*.yaml") if path.stem != "observe")


def granted(stem: str) -> Iterator[Right]:
    """All rights that the roles of a file grant."""
    for role in manifests(stem):
        namespace = role["metadata"].get("namespace", "") if role["kind"] == "Role" else ""
        for rule in role.get("rules", []):
            for verb in rule["verbs"]:
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        for name in rule.get("resourceNames", [""]):
                            yield Right(verb, group, resource, name, namespace)


async def grant(api: Api, *without: str) -> None:
    """Applies rights/, but for the files of these names, and for kinds that the API server does not serve."""
    unserved = () if await serves_gates(api) else _GATE_KINDS
    for stem in files():
        if stem not in without:
            for each in manifests(stem):
                if each["kind"] not in unserved:
                    await api.apply(each)


async def withhold(api: Api, stem: str) -> None:
    """Takes the role of a file from the account; `restore` gives it back."""
    for each in _bindings(stem):
        await api.delete(object_path(each))


async def restore(api: Api, stem: str) -> None:
    """Gives the account the role of a file again."""
    for each in _bindings(stem):
        await api.apply(each)


def _bindings(stem: str) -> list[dict[str, Any]]:
    return [each for each in manifests(stem) if each["kind"] in ("RoleBinding", "ClusterRoleBinding")]


async def token(api: Api, seconds: int = 600, account: str = "thalweg", audience: str = "", in_pod: str = "") -> str:
    """Of an account of thalweg-system, for so long; for the API server, or for another audience alone.

    ``in_pod``: the pod of the account that the token belongs to, as the tokens in pods do.
    """
    spec: dict[str, Any] = {"expirationSeconds": seconds, "audiences": [audience] if audience else []}
    if in_pod:
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": in_pod}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    made = await api.request("POST", f"{ACCOUNTS}/{account}/token", request)
    return str(made["status"]["token"])


async def kubeconfig(plane: ControlPlane, api: Api, folder: Path, seconds: int = 600, account: str = "thalweg") -> Path:
    """The plane's, with a token of an account of thalweg-system for so long."""
    config: dict[str, Any] = yaml.safe_load(plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": await token(api, seconds, account)}
    path = folder / f"{account}-kubeconfig"
    path.write_text(json.dumps(config))
    return path


def documented_rules() -> list[dict[str, Any]]:
    """The rules of a role for `thalweg doctor`, from the table of its page."""
    page = (RIGHTS.parent / "docs/how-to/check-a-cluster.md").read_text()
    table = page[page.index("| API group |") :].splitlines()[2:]
    rules = []
    for row in table:
        if not row.startswith("|"):
            break
        group, resources, names, verbs = (re.findall(r"`([^`]+)`", cell) for cell in row.strip("|").split("|"))
        rule = {"apiGroups": group or [""], "resources": resources, "verbs": verbs}
        rules.append({**rule, "resourceNames": names} if names else rule)
    return rules


async def doctor_kubeconfig(plane: ControlPlane, api: Api, folder: Path) -> Path:
    """The plane's, with a token of an account that has the documented rights of `thalweg doctor` and no other."""
    name = "thalweg-doctor"
    rbac, metadata = "rbac.authorization.k8s.io", {"name": name}
    account = {"kind": "ServiceAccount", "name": name, "namespace": "thalweg-system"}
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": name}
    for each in (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**metadata, "namespace": "thalweg-system"}},
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": documented_rules()},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": role,
            "subjects": [account],
        },
    ):
        await api.apply(each)
    return await kubeconfig(plane, api, folder, 3600, name)


def user_of(kubeconfig: Path) -> dict[str, Any]:
    """The only user of a kubeconfig."""
    config: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
    user: dict[str, Any] = config["users"][0]["user"]
    return user


@asynccontextmanager
async def acting_account(plane: ControlPlane, api: Api, folder: Path) -> AsyncIterator[Path]:
    """A kubeconfig of the account with all of rights/. The plane was started with `audit`.

    At the end the API server must not have refused the account anything for want of a right. Until it
    has read the roles, at its start, it refuses what it allows then: what was allowed at another time does not count.
    """
    await grant(api)
    for each in _OWN_LEASES:
        await api.apply(each)
    before = plane.audit_log.stat().st_size
    yield await kubeconfig(plane, api, folder, seconds=6 * 3600)
    requests = audited(plane, since=before)
    allowed = {(each.verb, each.group, each.resource) for each in requests if each.status not in (401, 403)}
    refused = [each for each in requests if each.status == 403]
    missing = [each for each in refused if (each.verb, each.group, each.resource) not in allowed]
    assert not missing, f"refused for want of a right: {missing}"
