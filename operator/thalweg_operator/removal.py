"""Takes out of a cluster what would keep pods waiting without us: admission policies first, then our gates.

Each step looks at what is there, so an interrupted removal is simply begun again. Nominations need no removal:
kube-scheduler takes them over as it tries the pods.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from flowcore.model.policies import GATE
from thalweg_operator.backoff import Backoff
from thalweg_operator.connection import STRATEGIC_MERGE_PATCH, Connection, api_path, pod_path
from thalweg_operator.errors import ConnectionLost, LeaseLost, Refused
from thalweg_operator.gate_admission import BINDINGS_PATH, RULES_PATH
from thalweg_operator.gates import GATE_LABEL, opening
from thalweg_operator.json_reading import NotReadable, Reader
from thalweg_operator.names import POLICIES_PATH

T = TypeVar("T")

_BACKOFF = Backoff(first=0.1, longest=5.0)
#: Seconds after which no API server gates pods by an admission policy that is gone.
_SETTLED = 3.0
_PAGE = 500
_AT_ONCE = 16
#: Tries of one request before it counts as refused: about a minute.
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


_pages = Reader(_Page)


@dataclass(slots=True)
class Removed:
    """What was done.

    Attributes:
        admission_objects: MutatingAdmissionPolicies and their bindings that were removed.
        gates_opened: pods whose gate was opened.
        policies: FlowSchedulingPolicies that were deleted.
        problems: what is left, in sentences.
    """

    admission_objects: int = 0
    gates_opened: int = 0
    policies: int = 0
    problems: list[str] = field(default_factory=list)


async def remove(connection: Connection, say: Callable[[str], None], *, policies: bool) -> Removed:
    """Removes our admission policies and opens our gates.

    Args:
        say: told of the progress.
        policies: whether FlowSchedulingPolicies are deleted too.

    Raises:
        Refused, ConnectionLost: the API server cannot be asked.
    """
    done = Removed()
    await _remove_admission(connection, done)
    since = time.monotonic()
    say(f"removed {done.admission_objects} admission policies and bindings")
    refused: dict[str, str] = {}
    while True:
        late = time.monotonic() - since >= _SETTLED
        found = await _open_all(connection, done, refused, say)
        if late and not found:
            break
        await asyncio.sleep(0 if found else _SETTLED / 3)
    done.problems += [f"the gate of pod {pod} is not opened: {problem}" for pod, problem in refused.items()]
    if policies:
        for name in await _names(connection, POLICIES_PATH, {}):
            done.policies += await _delete(connection, api_path(POLICIES_PATH, name), done)
        say(f"deleted {done.policies} policies")
    return done


async def _remove_admission(connection: Connection, done: Removed) -> None:
    for path in (BINDINGS_PATH, RULES_PATH):  # without its binding a policy does nothing
        for name in await _names(connection, path, {"labelSelector": GATE_LABEL}):
            if await _delete(connection, api_path(path, name), done):
                done.admission_objects += 1


async def _names(connection: Connection, path: str, params: dict[str, str]) -> list[str]:
    try:
        raw = await _insist(lambda: connection.request("GET", path, params=params))
    except Refused as error:
        if error.status != 404:  # 404: this API server has no such kind
            raise
        return []
    return [each.metadata.name for each in _understood(raw).items or ()]


async def _delete(connection: Connection, path: str, done: Removed) -> bool:
    try:
        await _insist(lambda: connection.request("DELETE", path))
    except Refused as error:
        if error.status != 404:
            done.problems.append(f"{path} is not deleted: {error.reason}")
        return False
    return True


async def _open_all(connection: Connection, done: Removed, refused: dict[str, str], say: Callable[[str], None]) -> int:
    """One pass over all pods without a node; how many had our gate, those that were refused left out."""
    found, token = 0, ""
    while True:
        page = await _page(connection, token)
        gated = [
            each
            for each in page.items or ()
            if f"{each.metadata.namespace}/{each.metadata.name}" not in refused
            and any(gate.name == GATE for gate in each.spec.scheduling_gates)
        ]
        found += len(gated)
        for start in range(0, len(gated), _AT_ONCE):
            await asyncio.gather(
                *(_open(connection, each.metadata, done, refused) for each in gated[start : start + _AT_ONCE])
            )
        if gated:
            say(f"opened the gates of {done.gates_opened} pods")
        token = page.metadata.token
        if not token:
            return found


async def _page(connection: Connection, token: str) -> _Page:
    # Pods with a node have no gates.
    params = {"fieldSelector": "spec.nodeName=", "limit": str(_PAGE)} | ({"continue": token} if token else {})
    try:
        raw = await _insist(lambda: connection.request("GET", "/api/v1/pods", params=params))
    except Refused as error:
        if error.status != 410:
            raise
        return _Page(_ListMeta())  # the list took too long: the next pass goes on
    return _understood(raw)


def _understood(raw: bytes) -> _Page:
    try:
        return _pages.read(raw)
    except NotReadable as error:
        raise ConnectionLost(f"the API server's answer is no list: {error}") from error


async def _open(connection: Connection, pod: _Meta, done: Removed, refused: dict[str, str]) -> None:
    path = pod_path(pod.namespace, pod.name)
    body = msgspec.json.encode(opening(pod.uid))
    try:
        await _insist(lambda: connection.request("PATCH", path, body=body, content_type=STRATEGIC_MERGE_PATCH))
        done.gates_opened += 1
    except Refused as error:
        if error.status not in (404, 409):  # it is gone, or another pod has its name
            refused[f"{pod.namespace}/{pod.name}"] = error.reason or str(error.status)


async def _insist(action: Callable[[], Awaitable[T]]) -> T:
    """Does it again while the API server is away or busy, for about a minute."""
    for tries in range(1, _TRIES):
        try:
            return await action()
        except LeaseLost:
            raise
        except ConnectionLost:
            await asyncio.sleep(_BACKOFF.pause(tries))
        except Refused as error:
            if not error.passing:
                raise
            await asyncio.sleep(_BACKOFF.pause(tries, error.retry_after))
    return await action()
