"""The view over HTTP: the files of the page, the operations below /api/v1/, and a stream of events.

It reads only. The page's files are served to everybody; data only to callers whose token was checked, and each caller
sees what the caller may read (``Access``).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import Final, get_args
from urllib.parse import unquote

import msgspec
import structlog
from aiohttp import web
from multidict import CIMultiDict

from flowcore.planning.plan_document import PlanDocument
from thalweg_view.answering import Answering
from thalweg_view.callers.access import Access, Caller
from thalweg_view.callers.places import Places
from thalweg_view.callers.view_limits import ViewLimits
from thalweg_view.compute_process.messages import Need, OperationShape, problem
from thalweg_view.errors import RequestRefused
from thalweg_view.source import ViewSource
from thalweg_view.web.events import Events
from thalweg_view.web.page_files import NOT_GATHERED, PageFile
from thalweg_view.web.requests import TOKEN_HEADER, check_host, check_site, get_query, read_body, token_of

_log = structlog.get_logger()
API: Final = "/api/v1/"
_EVENTS: Final = "events"
_KINDS: Final = get_args(Need)
_PAGE: Final = "page"
#: Nothing is fetched from elsewhere, nothing inline runs, and no other page may frame this one.
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
OnRequest = Callable[[str, int], None]


class ViewServer:
    """Answers requests.

    Args:
        page: files of the web page by path; empty: they were not gathered.
        loopback: whether requests must name a loopback address.
        on_request: called after each request with the operation ("page", "events" and "" beside their names; "":
            unknown) and the status.
    """

    def __init__(
        self,
        source: ViewSource,
        access: Access,
        answering: Answering,
        page: dict[str, PageFile],
        limits: ViewLimits,
        on_request: OnRequest,
        *,
        loopback: bool,
    ) -> None:
        self._source, self._access, self._answering = source, access, answering
        self._page, self._limits, self._on_request, self._loopback = page, limits, on_request, loopback
        self._events = Events(limits)
        share = limits.questions_per_caller
        self._questions = Places(limits.questions, share, "questions", retry_after=1)
        self._bodies = Places(limits.questions, share, "bodies of questions", retry_after=1)
        answering.on_state = lambda: self._events.state_read(answering.generation)
        source.on_round(self._round_planned)

    def _round_planned(self, plan: PlanDocument) -> None:
        self._answering.put_round(plan)
        self._events.round_planned(plan, self._answering.generation)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """The response to any request."""
        await asyncio.sleep(0)  # connections take turns
        path = request.rel_url.raw_path
        try:
            if self._loopback:
                check_host(request)
            if path.startswith("/api/"):
                response = await self._respond(request, path)
            else:
                response = self._file(request)
        except RequestRefused as error:
            response = _refusal(error)
        except ConnectionResetError:
            raise
        except Exception:  # noqa: BLE001 - one bad request must not stop the server
            _log.exception("request failed", path=path)
            response = _refusal(RequestRefused(500, "internal error of the view; read the log"))
        name = path.removeprefix(API).partition("/")[0] if path.startswith("/api/") else _PAGE
        self._on_request(name if name in (_PAGE, _EVENTS, *self._answering.known) else "", response.status)
        return response

    async def _respond(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        check_site(request)
        caller = await self._access.caller(token_of(request))
        self._check_available()
        name, _, rest = path.removeprefix(API).partition("/")
        if name == _EVENTS and request.method == "GET":
            return await self._stream(request, caller)
        operations = await self._answering.operations()
        operation = operations.get(name)
        if operation is None or not path.startswith(API):
            names = ", ".join((*operations, _EVENTS))
            raise RequestRefused(404, f"there is no such operation; below {API} there are {names}")
        if request.method != operation.method:
            raise RequestRefused(405, f"{name} is asked by {operation.method}")
        return await self._answer(request, name, operation, rest, caller)

    def _check_available(self) -> None:
        if reason := self._source.unavailable():
            raise RequestRefused(503, reason, retry_after=2)

    def _file(self, request: web.BaseRequest) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            raise RequestRefused(405, "the page is read by GET")
        if not self._page:
            raise RequestRefused(503, NOT_GATHERED)
        file = self._page.get(request.rel_url.raw_path)
        if file is None:
            raise RequestRefused(404, "the page has no such file")
        headers = {**HEADERS, "ETag": file.tag, "Cache-Control": "no-cache"}
        if request.headers.get("If-None-Match") == file.tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=file.content, headers={**headers, "Content-Type": file.content_type})

    async def _answer(
        self, request: web.BaseRequest, name: str, operation: OperationShape, rest: str, caller: Caller
    ) -> web.Response:
        segments = [unquote(each) for each in rest.split("/")] if rest else []
        if len(segments) != len(operation.segments):
            path = "/".join((name, *(each.upper() for each in operation.segments)))
            raise RequestRefused(404, f"the path of {name} is {API}{path}")
        asked, namespace = get_query(request, operation, segments)
        strict = operation.method == "POST"
        if strict and asked.keys() - {"namespace"}:
            raise RequestRefused(400, f"{name} takes its query as the body of the request")
        # The body is read only from a caller who may see something. A place is taken once all of the request is there.
        sees_all = await self._check_sees(caller, namespace)
        await self._check_needs(name, operation.needs_for(asked), caller)
        nodes = await self._access.may_list(caller, "nodes")
        if strict:
            with self._bodies.place(caller, sees_all=sees_all):
                query = await read_body(request, self._limits)
        else:
            query = msgspec.json.encode(asked)
        with self._questions.place(caller, sees_all=sees_all):
            # It may wait for the state to be read again.
            namespaces = await self._visible(caller, namespace, narrowed="namespace" not in operation.fields)
            answered = await self._answering.ask(
                caller, name, query, namespaces, sees_all=sees_all, strict=strict, nodes=nodes
            )
        if answered.status != 200 or strict:
            return _json(answered.status, answered.body)
        tag = f'"{hashlib.sha256(answered.body).hexdigest()[:32]}"'
        if request.headers.get("If-None-Match") == tag:
            return _json(304, b"", {"ETag": tag})
        return _json(200, answered.body, {"ETag": tag})

    async def _check_sees(self, caller: Caller, namespace: str) -> bool:
        """Whether a caller may see all pods.

        Args:
            namespace: that the caller asks about; "": all.

        Raises:
            RequestRefused: it may see nothing that the view shows (403).
        """
        access = self._access
        if await access.namespaces(caller, ()) is None:
            return True
        if namespace and await access.namespaces(caller, [namespace]):
            return False
        for kind in _KINDS:
            if await access.may_list(caller, kind):
                return False
        try:
            visible = await access.namespaces(caller, await self._answering.namespaces())
        except RequestRefused as error:
            if error.status != 400 or not namespace:
                raise
            visible = []
        if not visible:
            kinds = ", ".join(_KINDS)
            raise RequestRefused(
                403, f"{caller.name} may list nothing that the view shows: no {kinds}, and no pods where there are any"
            )
        return False

    async def _check_needs(self, name: str, needs: frozenset[Need], caller: Caller) -> None:
        for kind in sorted(needs):
            if not await self._access.may_list(caller, kind):
                raise RequestRefused(403, f"{caller.name} may not list {kind} in the cluster, and {name} shows them")

    async def _visible(self, caller: Caller, namespace: str, *, narrowed: bool) -> list[str] | None:
        """The namespaces whose pods the caller may see in the answer; None: all.

        Args:
            namespace: that the caller asks about; "": none of them. Without pods, or where there is none of that name,
                it is answered like one that may not be read.
            narrowed: no pod of another namespace is shown: the operation itself knows no namespace. Where it does,
                its answer names pods of others too, such as those that leave for a pod.
        """
        known = await self._answering.namespaces()
        if namespace and narrowed:
            visible = await self._access.namespaces(caller, [namespace])
            return [namespace] if visible is None else visible
        try:
            return await self._access.namespaces(caller, {*known, namespace} - {""})
        except RequestRefused as error:
            if error.status != 400 or not namespace:
                raise
            return await self._access.namespaces(caller, [namespace])  # there are too many to ask about all

    async def _stream(self, request: web.BaseRequest, caller: Caller) -> web.StreamResponse:
        headers = {**HEADERS, "Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        response = web.StreamResponse(headers=headers)
        sees_all = await self._check_sees(caller, request.query.get("namespace", ""))
        async with self._events.stream(caller, sees_all=sees_all) as stream:
            await response.prepare(request)
            text = b"retry: 2000\n\n"
            with suppress(RequestRefused, ConnectionError):
                while True:
                    try:
                        async with asyncio.timeout(self._limits.write):
                            await response.write(text)
                    except TimeoutError:
                        if request.transport is not None:
                            request.transport.abort()  # closing would wait for a caller that does not read
                        break
                    text = await stream.take(self._limits.heartbeat)
                    if not text:
                        break
                    # A token that was revoked, or another leader: the caller must ask again.
                    await self._access.caller(token_of(request))
                    self._check_available()
        response.force_close()
        return response

    async def keep_fresh(self) -> None:
        """Reads the state again and again while a caller listens; runs until cancelled."""
        while True:
            await asyncio.sleep(1.0)
            if self._events and not self._source.unavailable():
                with suppress(RequestRefused):  # callers get it as their answer
                    await self._answering.refresh()

    async def end(self) -> None:
        """Ends streams of events, and questions under way: an open page must not delay the end of the process."""
        self._events.end()
        await self._answering.stop()


def _json(status: int, body: bytes, headers: dict[str, str] | None = None) -> web.Response:
    fixed = {**HEADERS, "Content-Type": "application/json", "Cache-Control": "no-store", "Vary": TOKEN_HEADER}
    return web.Response(status=status, body=body, headers=CIMultiDict({**fixed, **(headers or {})}))


def _refusal(error: RequestRefused) -> web.Response:
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    response = _json(error.status, problem(str(error)), headers)
    if error.status in (400, 401, 403, 408, 413, 415, 421, 429, 503):
        response.force_close()  # a body may not have been read, and the next connection may lead elsewhere
    return response
