"""Removes the objects that would keep pods waiting without the operator: admission policies, then scheduling gates.

Each step reads the cluster, so an interrupted removal can be repeated. Nominations need no removal: kube-scheduler
replaces them when it tries the pods.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from flowcore.model.policies import GATE
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import STRATEGIC_MERGE_PATCH, ApiClient, api_path, pod_path
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.constants import POLICIES_PATH
from thalweg_operator.errors import ConnectionLost, LeaseLost, Refused
from thalweg_operator.policies.gate_admission import BINDINGS_PATH, NEW_POD_RULES_PATH, RULES_PATH
from thalweg_operator.policies.gate_manifests import GATE_LABEL, open_patch

T = TypeVar("T")

_BACKOFF = Backoff(first=0.1, longest=5.0)
#: Seconds until all API servers know that an admission policy is deleted.
_SETTLED = 3.0
_PAGE = 500
_CONCURRENCY = 16
#: Tries of one request, over about a minute.
_TRIES = 15


class _Meta(msgspec.Struct):
    name: str
    namespace: str = ""
    uid: str = ""


class _ListMeta(msgspec.Struct, rename={"token": "continue"}):
    token: str = ""


class _Gate(msgspec.Struct):
    name: str


class _Spec(msgspec.Struct, rename="camel"):
    scheduling_gates: list[_Gate] = []


class _Object(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[_Object] | None = None


_pages = JsonReader(_Page)


@dataclass(slots=True)
class Removed:
    """What was removed.

    Attributes:
        admission_objects: MutatingAdmissionPolicies and their bindings that were removed.
        gates_opened: pods whose gate was opened.
        policies: FlowSchedulingPolicies that were deleted.
        problems: sentences about objects that could not be removed.
    """

    admission_objects: int = 0
    gates_opened: int = 0
    policies: int = 0
    problems: list[str] = field(default_factory=list)


async def remove(api_client: ApiClient, report: Callable[[str], None], *, policies: bool) -> Removed:
    """Removes our admission policies and opens our gates.

    Args:
        report: called with each line of progress.
        policies: whether FlowSchedulingPolicies are deleted too.

    Raises:
        Refused, ConnectionLost: the API server cannot be asked.
    """
    done = Removed()
    await _remove_admission(api_client, done)
    since = time.monotonic()
    report(f"removed {done.admission_objects} admission policies and bindings")
    refused: dict[str, str] = {}
    while True:
        late = time.monotonic() - since >= _SETTLED
        opened = await _open_all(api_client, done, refused, report)
        if late and not opened:
            break
        await asyncio.sleep(0 if opened else _SETTLED / 3)
    done.problems += [f"the gate of pod {pod} is not opened: {problem}" for pod, problem in refused.items()]
    if policies:
        for name in await _names(api_client, POLICIES_PATH, {}):
            done.policies += await _delete(api_client, api_path(POLICIES_PATH, name), done)
        report(f"deleted {done.policies} policies")
    return done


async def _remove_admission(api_client: ApiClient, done: Removed) -> None:
    for path in (BINDINGS_PATH, RULES_PATH):  # a policy has no effect without its binding
        for name in await _names(api_client, path, {"labelSelector": GATE_LABEL}):
            if await _delete(api_client, api_path(path, name), done):
                done.admission_objects += 1
    await _delete(api_client, NEW_POD_RULES_PATH, done)


async def _names(api_client: ApiClient, path: str, params: dict[str, str]) -> list[str]:
    try:
        raw = await _with_retries(lambda: api_client.request("GET", path, params=params))
    except Refused as error:
        if error.status != 404:  # 404: the kind is not served
            raise
        return []
    return [each.metadata.name for each in _decode_page(raw).items or ()]


async def _delete(api_client: ApiClient, path: str, done: Removed) -> bool:
    try:
        await _with_retries(lambda: api_client.request("DELETE", path))
    except Refused as error:
        if error.status != 404:
            done.problems.append(f"{path} is not deleted: {error.reason}")
        return False
    return True


async def _open_all(
    api_client: ApiClient, done: Removed, refused: dict[str, str], report: Callable[[str], None]
) -> int:
    """One pass over all pods without a node; returns how many had our gate, without those refused before."""
    count, token = 0, ""
    while True:
        page = await _page(api_client, token)
        gated = [
            pod
            for pod in page.items or ()
            if f"{pod.metadata.namespace}/{pod.metadata.name}" not in refused
            and any(gate.name == GATE for gate in pod.spec.scheduling_gates)
        ]
        count += len(gated)
        for start in range(0, len(gated), _CONCURRENCY):
            await asyncio.gather(
                *(_open(api_client, each.metadata, done, refused) for each in gated[start : start + _CONCURRENCY])
            )
        if gated:
            report(f"opened the gates of {done.gates_opened} pods")
        token = page.metadata.token
        if not token:
            return count


async def _page(api_client: ApiClient, token: str) -> _Page:
    # Pods with a node have no gates.
    params = {"fieldSelector": "spec.nodeName=", "limit": str(_PAGE)} | ({"continue": token} if token else {})
    try:
        raw = await _with_retries(lambda: api_client.request("GET", "/api/v1/pods", params=params))
    except Refused as error:
        if error.status != 410:
            raise
        return _Page(_ListMeta())  # the list expired: the next pass continues
    return _decode_page(raw)


def _decode_page(raw: bytes) -> _Page:
    try:
        return _pages.read(raw)
    except UnreadableJson as error:
        raise ConnectionLost(f"the API server's answer is no list: {error}") from error


async def _open(api_client: ApiClient, pod: _Meta, done: Removed, refused: dict[str, str]) -> None:
    path = pod_path(pod.namespace, pod.name)
    body = msgspec.json.encode(open_patch(pod.uid))
    try:
        await _with_retries(lambda: api_client.request("PATCH", path, body=body, content_type=STRATEGIC_MERGE_PATCH))
        done.gates_opened += 1
    except Refused as error:
        if error.status not in (404, 409):  # the pod is gone, or another pod has its name
            refused[f"{pod.namespace}/{pod.name}"] = error.reason or str(error.status)


async def _with_retries(action: Callable[[], Awaitable[T]]) -> T:
    """Repeats a request while the API server is away or busy, for about a minute."""
    for tries in range(1, _TRIES):
        try:
            return await action()
        except LeaseLost:
            raise
        except ConnectionLost:
            await asyncio.sleep(_BACKOFF.pause(tries))
        except Refused as error:
            if not error.transient:
                raise
            await asyncio.sleep(_BACKOFF.pause(tries, error.retry_after))
    return await action()
