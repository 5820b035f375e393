"""A thin asynchronous client of the API server for tests and benchmarks: paths and untyped JSON.

Thalweg itself does not use it: tests must not observe the cluster through the code under test.
"""

import asyncio
import base64
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import aiohttp
import msgspec.json
import msgspec.yaml

from thalweg_controlplane.client.objects import Manifest, collection_path, object_path
from thalweg_controlplane.errors import ApiError

MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

_DECODER: Final = msgspec.json.Decoder()
_PAGE: Final = 5000
_LONGEST_PAUSE: Final = 0.2
"""Seconds between two questions to the API server, at most."""

Manifests: TypeAlias = list[Manifest]
"""Inside Api the name `list` is its method."""


class Api:
    """A session as the kubeconfig's current user: `async with Api(kubeconfig) as api:`.

    Every method raises ApiError when the server refuses a request, with status 0 when it does not answer.
    """

    def __init__(self, kubeconfig: Path, *, connections: int = 64) -> None:
        self.url, self._headers, self._tls = _read(kubeconfig)
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            connector=aiohttp.TCPConnector(limit=self._connections, ssl=self._tls),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Any:
        """One request; the answer decoded if it is JSON, else its text. That of a watch is a list."""
        if self._session is None:
            raise RuntimeError("Api is used outside of its `async with`")
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": content_type} if data is not None else {}
        try:
            async with self._session.request(
                method, self.url + path, data=data, params=params, headers=headers
            ) as answer:
                raw = await answer.read()
                if answer.status >= 400:
                    raise ApiError(answer.status, _message(raw))
                if answer.content_type != "application/json":
                    return raw.decode()
                is_watch = params is not None and "watch" in params
                return _DECODER.decode_lines(raw) if is_watch else _DECODER.decode(raw)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ApiError(0, f"{method} {self.url}{path}: {error!r}") from error

    async def get(self, path: str, **params: str) -> Any:
        """The object at `path`."""
        return await self.request("GET", path, params=params)

    async def list(self, path: str, **params: str) -> Manifests:
        """All items of the collection at `path`, page by page (labelSelector and fieldSelector are params)."""
        items: Manifests = []
        token = ""
        while True:
            page = await self.get(path, **params, limit=str(_PAGE), **({"continue": token} if token else {}))
            items += page["items"]
            token = page["metadata"].get("continue", "")
            if not token:
                return items

    async def versions(self, path: str, since: str, *, seconds: int = 1) -> Manifests:
        """All versions that objects of the collection at `path` had after `since`, by a watch of so many seconds."""
        params = {"watch": "true", "resourceVersion": since, "timeoutSeconds": str(seconds)}
        return [event["object"] for event in await self.request("GET", path, params=params)]

    async def create(self, manifest: Mapping[str, Any]) -> Any:
        """POSTs a manifest; returns the created object. A Node keeps its status, other kinds lose it."""
        return await self.request("POST", collection_path(manifest), manifest)

    async def create_many(self, manifests: Iterable[Mapping[str, Any]], concurrency: int = 32) -> Manifests:
        """Creates objects, `concurrency` at a time, started in order; returns the created objects in this order."""
        gate = asyncio.Semaphore(concurrency)

        async def create_one(manifest: Mapping[str, Any]) -> Any:
            async with gate:
                return await self.create(manifest)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(create_one(manifest)) for manifest in manifests]
        return [task.result() for task in tasks]

    async def apply(self, manifest: Mapping[str, Any], *, manager: str = "thalweg-controlplane") -> Any:
        """Creates or updates an object by server-side apply."""
        params = {"fieldManager": manager, "force": "true"}
        return await self.request("PATCH", object_path(manifest), manifest, params=params, content_type=APPLY_PATCH)

    async def patch(self, path: str, patch: object, *, content_type: str = MERGE_PATCH) -> Any:
        """PATCHes the object at `path`."""
        return await self.request("PATCH", path, patch, content_type=content_type)

    async def replace(self, path: str, manifest: Mapping[str, Any]) -> Any:
        """PUTs `manifest` at `path` (409 when its resourceVersion is no longer current)."""
        return await self.request("PUT", path, manifest)

    async def delete(self, path: str, **params: str) -> Any:
        """Deletes an object, or a whole collection."""
        return await self.request("DELETE", path, params=params)

    async def wait_for(
        self, path: str, condition: Callable[[Any], bool], *, within: float = 30.0, every: float = 0.05
    ) -> Any:
        """Reads `path` until `condition` holds for the answer; returns the answer.

        It also waits for a missing object, and for a server that is down or busy. It asks after `every` seconds, and
        less often the longer it waits. Raises TimeoutError after `within` seconds, with the last answer in its message.
        """
        began = time.monotonic()
        while True:
            try:
                last = await self.get(path)
                if condition(last):
                    return last
            except ApiError as error:
                if error.status not in (0, 404, 429, 503):
                    raise
                last = error
            waited = time.monotonic() - began
            if waited > within:
                raise TimeoutError(f"waited {within:g} s for {path}; the last answer was {last}")
            await asyncio.sleep(pause(waited, every))


def pause(waited: float, shortest: float) -> float:
    """Seconds until a wait asks again; ``waited``, the seconds so far: a long wait asks less often."""
    return max(shortest, min(waited / 20, _LONGEST_PAUSE))


def _message(raw: bytes) -> str:
    """The message of a Status, or the raw text."""
    try:
        return str(msgspec.json.decode(raw)["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return raw.decode(errors="replace")


def _read(kubeconfig: Path) -> tuple[str, dict[str, str], ssl.SSLContext]:
    """URL, headers and TLS of the current context."""
    config = msgspec.yaml.decode(kubeconfig.read_bytes())
    context = next(entry["context"] for entry in config["contexts"] if entry["name"] == config["current-context"])
    cluster = next(entry["cluster"] for entry in config["clusters"] if entry["name"] == context["cluster"])
    user = next(entry["user"] for entry in config["users"] if entry["name"] == context["user"])
    authority = cluster.get("certificate-authority-data")
    tls = ssl.create_default_context(
        cafile=cluster.get("certificate-authority"),
        cadata=base64.b64decode(authority).decode() if authority else None,
    )
    headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
    if "client-certificate" in user:
        tls.load_cert_chain(user["client-certificate"], user["client-key"])
    return cluster["server"].rstrip("/"), headers, tls
