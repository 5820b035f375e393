"""A simulated API server: as much of its HTTP API as one scheduler needs, over a cluster too large to run here.

    python -m harness.simulated_api --nodes 50000 --running 500000 --port 8001

It serves paged lists and watches, takes bindings, patches and Leases, and keeps no object that nobody wrote: nodes and
running pods are made when they are listed (``large_cluster``). It checks nothing. ``POST /simulation/pods`` creates
waiting pods at once, and ``GET /simulation`` says how many are bound, and when the last was.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Callable
from typing import Any

import click
from aiohttp import web
from thalweg_controlplane.client.objects import pod

from flowcore.api.kinds import KINDS, NAMESPACE, NODE, POD, POLICY
from harness.large_cluster import LargeCluster
from harness.workload import MEASURED

_BOOKMARK_SECONDS = 20.0
_TEAMS = 500
_PAGE = 500
_JSON = "application/json"
_VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")
_PODS, _NODES, _NAMESPACES = POD.paths[0], NODE.paths[0], NAMESPACE.paths[0]
#: All that the operator watches: path -> kind. Of all but pods, nodes and namespaces there are no objects.
_KINDS = {kind.paths[0]: kind.kind for kind in KINDS}

Document = dict[str, Any]


def _made(make: Callable[[int, int], bytes], start: int, end: int) -> bytes:
    return b",".join([make(number, number + 1) for number in range(start, end)])


def _encode(document: Document) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


class SimulatedApi:
    """See the module."""

    def __init__(self, cluster: LargeCluster) -> None:
        self._cluster = cluster
        self._version = 1_000_000
        #: Pods that were created here, by namespace/name, and Leases by path.
        self._pods: dict[str, Document] = {}
        self._leases: dict[str, Document] = {}
        self._watchers: dict[str, list[asyncio.Queue[bytes]]] = {}
        self._created_at = self._bound_at = 0.0
        self._bound = 0
        self._calls: dict[str, int] = {}
        #: Objects of pages that were made before anybody asked, by path and first object.
        self._prepared: dict[tuple[str, int], bytes] = {}

    def prepare(self) -> None:
        """Makes all pages of nodes and pods: then the server's work takes no time from whoever lists them."""
        for path, count, make in self._pages():
            for start in range(0, count, _PAGE):
                self._prepared[path, start] = _made(make, start, min(count, start + _PAGE))

    def _pages(self) -> list[tuple[str, int, Callable[[int, int], bytes]]]:
        cluster = self._cluster
        return [(_PODS, cluster.running, cluster.pod), (_NODES, cluster.nodes, cluster.node)]

    # --- requests ---

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Any request."""
        path, verb = request.path, request.method
        self._calls[verb] = self._calls.get(verb, 0) + 1
        if path == "/simulation":
            return web.json_response(self._report())
        if path == "/simulation/pods":
            return self._create(await request.json())
        if verb == "GET":
            return await self._get(request)
        if path.endswith("/binding"):
            return self._bind(path, await request.json())
        if "/leases" in path:
            return self._write_lease(path, await request.json())
        if "/pods/" in path and verb == "PATCH":
            return self._patch(path, await request.json())
        if path.endswith("/events"):
            return web.json_response({}, status=201)
        return _refused(404, f"{verb} {path} is not simulated")

    async def _get(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if "watch" in request.query:
            return await self._watch(request)
        for listed, count, make in self._pages():
            if path == listed:
                return self._page(request, count, make, self._pods if path == _PODS else {})
        if path == _NAMESPACES:
            names = [MEASURED, *(f"team-{i:03}" for i in range(_TEAMS))]
            return self._list([_encode({"metadata": {"name": name, "resourceVersion": "1"}}) for name in names])
        if path in _KINDS:
            return self._list([])
        if path in self._leases:
            return web.json_response(self._leases[path])
        return _discovery(path)

    def _list(self, items: list[bytes], token: str = "") -> web.Response:
        meta = b'{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"%d"%s},"items":[' % (
            self._version,
            f',"continue":"{token}"'.encode() if token else b"",
        )
        return web.Response(body=b"".join((meta, b",".join(items), b"]}")), content_type=_JSON)

    def _page(
        self, request: web.Request, count: int, make: Callable[[int, int], bytes], written: dict[str, Document]
    ) -> web.Response:
        start = int(request.query.get("continue", 0))
        end = min(count, start + int(request.query.get("limit", count or 1)))
        made = self._prepared.get((request.path, start)) if end - start in (_PAGE, count - start) else None
        items = [_made(make, start, end) if made is None else made] if end > start else []
        if end < count:
            return self._list(items, str(end))
        return self._list(items + [_encode(each) for each in written.values()])

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": _JSON})
        await answer.prepare(request)
        events: asyncio.Queue[bytes] = asyncio.Queue()
        watchers = self._watchers.setdefault(request.path, [])
        watchers.append(events)
        try:
            while True:
                try:
                    async with asyncio.timeout(_BOOKMARK_SECONDS):
                        lines = [await events.get()]
                except TimeoutError:
                    bookmark = {"kind": _KINDS[request.path], "metadata": {"resourceVersion": str(self._version)}}
                    lines = [_event("BOOKMARK", _encode(bookmark))]
                while not events.empty():
                    lines.append(events.get_nowait())
                await answer.write(b"".join(lines))
        except (ConnectionError, asyncio.CancelledError):
            return answer
        finally:
            watchers.remove(events)

    # --- writes ---

    def _tell(self, path: str, kind: str, document: Document) -> None:
        line = _event(kind, _encode(document))
        for each in self._watchers.get(path, ()):
            each.put_nowait(line)

    def _next_version(self) -> str:
        self._version += 1
        return str(self._version)

    def _create(self, wanted: Document) -> web.Response:
        self._created_at = time.time()
        self._bound, self._pods = 0, {}
        made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        for i in range(wanted["count"]):
            name = f"{wanted['prefix']}-{i:05}"
            size = i % wanted.get("classes", 1)
            each = pod(name, f"{100 + size}m", "100Mi", MEASURED, wanted["scheduler"], labels={"app": wanted["prefix"]})
            each["metadata"] |= {
                "uid": f"uid-{name}",
                "creationTimestamp": made,
                "resourceVersion": self._next_version(),
            }
            each["status"] = {"phase": "Pending"}
            self._pods[f"{MEASURED}/{name}"] = each
            self._tell(_PODS, "ADDED", each)
        return web.json_response({}, status=201)

    def _bind(self, path: str, binding: Document) -> web.Response:
        *_, namespace, _, name, _ = path.split("/")
        each = self._pods[f"{namespace}/{name}"]
        if each["spec"].get("nodeName"):
            return _refused(409, "it is bound")
        each["spec"]["nodeName"] = binding["target"]["name"]
        each["metadata"]["resourceVersion"] = self._next_version()
        self._bound += 1
        self._bound_at = time.time()
        self._tell(_PODS, "MODIFIED", each)
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    def _patch(self, path: str, patch: Document) -> web.Response:
        parts = path.split("/")
        each = self._pods.get(f"{parts[4]}/{parts[6]}")
        if each is None:
            return _refused(404, "no such pod")
        each["status"].update(patch.get("status", {}))
        each["metadata"]["resourceVersion"] = self._next_version()
        self._tell(_PODS, "MODIFIED", each)
        return web.json_response(each)

    def _write_lease(self, path: str, lease: Document) -> web.Response:
        name = lease["metadata"]["name"]
        path = path if path.endswith(f"/{name}") else f"{path}/{name}"
        lease["metadata"] |= {"resourceVersion": self._next_version(), "uid": "lease"}
        self._leases[path] = lease
        return web.json_response(lease)

    def _report(self) -> Document:
        return {
            "waiting": len(self._pods) - self._bound,
            "bound": self._bound,
            "seconds": self._bound_at - self._created_at,
            "cpu_seconds": time.process_time(),
            "calls": self._calls,
        }


def _event(kind: str, document: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), document)


def _refused(status: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": status, "message": message}, status=status)


def _discovery(path: str) -> web.Response:
    """What is asked before anything is listed. kopf looks for policies alone."""
    group, version = POLICY.group, POLICY.versions[0]
    match path:
        case "/version":
            return web.json_response({"major": "1", "minor": "36", "gitVersion": "v1.36.0"})
        case "/api":
            return web.json_response({"kind": "APIVersions", "versions": ["v1"]})
        case "/api/v1":
            return web.json_response({"kind": "APIResourceList", "groupVersion": "v1", "resources": []})
        case "/apis":
            served = {"groupVersion": f"{group}/{version}", "version": version}
            groups = [{"name": group, "versions": [served], "preferredVersion": served}]
            return web.json_response({"kind": "APIGroupList", "groups": groups})
    if path != f"/apis/{group}/{version}":
        return _refused(404, f"{path} is not served")
    resource = {"name": POLICY.plural, "kind": POLICY.kind, "namespaced": POLICY.namespaced}
    resource |= {"singularName": POLICY.kind.lower(), "verbs": list(_VERBS)}
    return web.json_response({"kind": "APIResourceList", "groupVersion": POLICY.api_version, "resources": [resource]})


@click.command()
@click.option("--nodes", required=True, type=int)
@click.option("--running", required=True, type=int)
@click.option("--port", required=True, type=int)
@click.option("--prepared/--no-prepared", default=False)
def main(nodes: int, running: int, port: int, *, prepared: bool) -> None:
    """Serves until it is ended."""
    gc.disable()
    app = web.Application(client_max_size=2**24)
    api = SimulatedApi(LargeCluster(nodes, running))
    if prepared:
        api.prepare()
    app.router.add_route("*", "/{path:.*}", api.handle)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


if __name__ == "__main__":
    main()
