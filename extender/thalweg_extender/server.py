"""The extender over HTTP: POST /filter, /prioritize, /preempt, and /bind where that is asked for.

kube-scheduler prints the ``Error`` of a filter or bind answer; of any status but 200 it prints the code alone, so
texts beside other codes are for people with curl.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog
from aiohttp import web
from aiohttp.http import HttpProcessingError

from flowcore.model.guidance import Asked, Guidance
from thalweg_extender import wire
from thalweg_extender.answers import to_filter, to_preempt, to_prioritize
from thalweg_extender.errors import BadRequest, ExtenderError
from thalweg_extender.guide import Bind, Guide, OnAnswer

#: Bytes of the largest body that is read.
MOST: Final = 64 * 1024 * 1024
_NEEDS_NAMES: Final = "set nodeCacheCapable: true for this extender in the KubeSchedulerConfiguration: it goes by names"

_log = structlog.get_logger()

#: What became of a request in a word, and the answer's body.
_Answer = tuple[str, bytes]


class _NotNow(ExtenderError):
    """The guide cannot say anything at present."""


def application(guide: Guide, *, bind: Bind | None = None, on_answer: OnAnswer | None = None) -> web.Application:
    """The web application; made to be mounted with ``add_subapp``.

    kube-scheduler keeps an idle connection for 90 s and does not repeat a POST that meets a closed one. So the runner's
    ``keepalive_timeout`` must be longer.

    Args:
        bind: serves the bind verb; without it there is none.
        on_answer: told of each answer; its second argument is steered, held, passed, scored, spared, preempted, bound,
            refused (the request was wrong, or the binding failed), unready or failed.
    """
    answers = _Answers(guide, bind)
    app = web.Application()
    app.router.add_post("/filter", _serve("filter", answers.filter, on_answer))
    app.router.add_post("/prioritize", _serve("prioritize", answers.prioritize, on_answer))
    app.router.add_post("/preempt", _serve("preempt", answers.preempt, on_answer))
    if bind is not None:
        app.router.add_post("/bind", _serve("bind", answers.bind, on_answer))
    return app


class _Answers:
    """Each verb from a request's body to the answer's."""

    def __init__(self, guide: Guide, bind: Bind | None) -> None:
        self._guide, self._bind = guide, bind

    async def filter(self, body: bytes) -> _Answer:
        args = wire.decode(wire.extender_args, body)
        if args.node_names is None:
            return "refused", wire.encode(wire.ExtenderFilterResult(error=_NEEDS_NAMES))
        asked = wire.to_asked(args.pod)
        outcome, passed, result = to_filter(self._guidance(asked, args.node_names), args.node_names)
        answer = wire.encode(result)
        self._guide.answered(asked, outcome, passed)
        return outcome, answer

    async def prioritize(self, body: bytes) -> _Answer:
        args = wire.decode(wire.extender_args, body)
        if args.node_names is None:
            raise BadRequest(_NEEDS_NAMES)
        guidance = self._guidance(wire.to_asked(args.pod), args.node_names)
        return "scored", wire.encode(to_prioritize(guidance, args.node_names))

    async def preempt(self, body: bytes) -> _Answer:
        args = wire.decode(wire.preemption_args, body)
        if args.node_name_to_meta_victims is None:
            raise BadRequest(_NEEDS_NAMES)
        guidance = self._guidance(wire.to_asked(args.pod), tuple(args.node_name_to_meta_victims))
        result = to_preempt(guidance, args.node_name_to_meta_victims)
        return "preempted" if result.node_name_to_meta_victims else "spared", wire.encode(result)

    async def bind(self, body: bytes) -> _Answer:
        args = wire.decode(wire.binding_args, body)
        if self._bind is None or not (args.pod_name and args.node):
            raise BadRequest("the request names no pod or no node")
        error = await self._bind(args.pod_namespace or "", args.pod_name, args.pod_uid or "", args.node)
        return "refused" if error else "bound", wire.encode(wire.ExtenderBindingResult(error))

    def _guidance(self, asked: Asked, names: Sequence[str]) -> Guidance:
        guidance = self._guide.guidance(asked, names)
        if isinstance(guidance, str):
            raise _NotNow(guidance)
        return guidance


def _serve(
    verb: str, answer: Callable[[bytes], Awaitable[_Answer]], on_answer: OnAnswer | None
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A handler that answers whatever comes, and tells how long that took."""

    async def handle(request: web.Request) -> web.Response:
        try:
            body = await _read(request)
        except BadRequest as problem:
            body, response = b"", _problem(problem.status, str(problem))
            response.force_close()  # what is left of the body is not worth reading
            started, outcome = time.perf_counter(), "refused"
        else:
            started = time.perf_counter()
            outcome, response = await _respond(verb, answer, body)
        if on_answer is not None:
            on_answer(verb, outcome, time.perf_counter() - started)
        return response

    return handle


async def _respond(verb: str, answer: Callable[[bytes], Awaitable[_Answer]], body: bytes) -> tuple[str, web.Response]:
    # A body given as bytes goes out in one write with its headers, its length among them. Nothing follows the JSON: Go
    # reads no further than the value, and keeps the connection if that was all there is.
    try:
        outcome, text = await answer(body)
    except BadRequest as problem:
        return "refused", _problem(problem.status, str(problem))
    except _NotNow as reason:
        return "unready", _problem(503, str(reason))
    except Exception:  # noqa: BLE001 - whatever it is, the next pod is answered
        _log.exception("no answer for kube-scheduler", verb=verb)
        return "failed", _problem(500, "the extender failed; its log says why")
    return outcome, web.Response(body=text, content_type="application/json")


def _problem(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")


async def _read(request: web.Request) -> bytes:
    """The body. A sub-application has no say in aiohttp's own limit, so it is read from the stream, which has none.

    Raises:
        BadRequest: it is too large, or did not arrive whole.
    """
    too_large = BadRequest(f"the body is larger than {MOST // 1024**2} MiB", status=413)
    if (request.content_length or 0) > MOST:
        raise too_large
    parts, size = [], 0
    try:
        async for part in request.content.iter_any():
            size += len(part)
            if size > MOST:
                raise too_large
            parts.append(part)
    except (ConnectionError, web.RequestPayloadError, HttpProcessingError) as error:
        raise BadRequest(f"the body did not arrive whole: {error}") from error
    return b"".join(parts)
