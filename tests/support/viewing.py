"""Asks the view of an operator that runs as a process of its own."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from support.operator import until
from support.rights import token
from thalweg_controlplane import Api
from thalweg_view.callers.access import AUDIENCE

SYSTEM = "thalweg-system"
RBAC = "rbac.authorization.k8s.io"
#: Resources of the whole cluster that a viewer who sees everything may list.
ALL = ("pods", "nodes", "flowschedulingpolicies", "flowqueues")


class Viewer:
    """Asks the view with one token."""

    def __init__(self, session: aiohttp.ClientSession, port: int, token: str) -> None:
        self._session, self._base, self._token = session, f"https://127.0.0.1:{port}/api/v1/", token

    async def ask(self, operation: str, body: Any = None, **parameters: str) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        headers = {"Authorization": f"Bearer {self._token}"}
        method = "GET" if body is None else "POST"
        async with self._session.request(
            method, self._base + operation, headers=headers, params=parameters, json=body
        ) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def view_session() -> AsyncIterator[aiohttp.ClientSession]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nobody signed it
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120)) as session:
        yield session


async def answered(viewer: Viewer, operation: str, status: int, within: float = 60.0) -> Any:
    """Waits until an operation answers with a status; its JSON."""
    last: tuple[int, Any] = (0, None)

    async def has_answered() -> bool:
        nonlocal last
        last = await viewer.ask(operation)
        return last[0] == status

    await until(has_answered, within, lambda: f"{operation} to answer {status}; last {last}")
    return last[1]


async def account_that_lists(api: Api, name: str, *, pods_of: str = "", cluster: tuple[str, ...] = ()) -> str:
    """The token of a new account that may list pods of a namespace, and these resources of the whole cluster."""
    await api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": SYSTEM}})
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": SYSTEM}]
    groups = ["", "scheduling.thalweg"]
    for kind, namespace, resources in (("Role", pods_of, ("pods",)), ("ClusterRole", "", cluster)):
        if not (namespace or cluster) or (kind == "Role" and not namespace) or not resources:
            continue
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        rules = [{"apiGroups": groups, "resources": list(resources), "verbs": ["list"]}]
        await api.apply({"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules})
        ref = {"apiGroup": RBAC, "kind": kind, "name": name}
        binding = {"kind": f"{kind}Binding", "metadata": metadata, "roleRef": ref, "subjects": subjects}
        await api.apply({"apiVersion": f"{RBAC}/v1", **binding})
    return await token(api, account=name, audience=AUDIENCE)
