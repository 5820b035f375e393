"""The extender's verbs over HTTP: POST to /extender/filter, /prioritize, /preempt, and /bind where that is asked for.

kube-scheduler prints the ``Error`` of a filter or bind answer; of any status but 200 it prints the code alone, so
texts beside other codes are for people with curl.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog
from aiohttp import web
from aiohttp.http import HttpProcessingError

from flowcore.model.guidance import Asked, Guidance
from thalweg_extender import wire
from thalweg_extender.answers import Outcome, to_filter, to_preempt, to_prioritize
from thalweg_extender.errors import BadRequest, ExtenderError
from thalweg_extender.guide import Bind, Guide, OnAnswer, OnRefused
from thalweg_extender.limits import Limits

#: What kube-scheduler's urlPrefix ends with.
PREFIX: Final = "/extender"
_NEEDS_NAMES: Final = "set nodeCacheCapable: true for this extender in the KubeSchedulerConfiguration: it goes by names"

_log = structlog.get_logger()

#: What became of a request in a word, and the answer's body.
_Answer = tuple[str, bytes]
_Verb = Callable[[bytes], Awaitable[_Answer]]


class _NotNow(ExtenderError):
    """The guide cannot say anything at present."""


class Requests:
    """Answers requests, so many at a time.

    Args:
        bind: serves the bind verb; without it there is none.
        on_answer: told of each answer; its second argument is steered, held, unknown, passed, scored, spared,
            preempted, bound, refused (the request was wrong, or the binding failed), busy, unready or failed.
        on_refused: told of each request that is refused.
    """

    def __init__(
        self, guide: Guide, bind: Bind | None, limits: Limits, on_answer: OnAnswer, on_refused: OnRefused
    ) -> None:
        self._limits, self._on_answer, self._on_refused = limits, on_answer, on_refused
        answers = _Answers(guide, bind)
        verbs: dict[str, _Verb] = {
            "filter": answers.filter,
            "prioritize": answers.prioritize,
            "preempt": answers.preempt,
        }
        if bind is not None:
            verbs["bind"] = answers.bind
        self._verbs = {f"{PREFIX}/{verb}": (verb, answer) for verb, answer in verbs.items()}
        self._in_flight = 0
        #: Ends of those whose bodies are under way, the oldest first.
        self._reading: dict[asyncio.Timeout, None] = {}
        #: Answers that are of no use, and when the next of them may be given.
        self._line, self._next = asyncio.Lock(), 0.0

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """The answer to one request, whatever it is."""
        await asyncio.sleep(0)  # connections take turns: one that sends many requests at once does not go first
        verb, answer = self._verbs.get(request.path, ("", None))
        if answer is None or request.method != "POST":
            status = 404 if answer is None else 405
            return await self._refuse(request, BadRequest("POST a verb to /extender/VERB", status, "path"), keep=True)
        if self._in_flight >= self._limits.in_flight and not self._make_room():
            self._on_answer(verb, "busy", 0.0)
            busy = self._busy()
            self._on_refused(busy.field, request.remote or "", str(busy))
            response = _problem(busy.status, str(busy))
            response.headers["Retry-After"] = "1"
            response.force_close()  # its body is not read
            return response
        self._in_flight += 1
        refused: BadRequest | None = None
        keep = True
        try:
            body = await self._read(request)
            started = time.perf_counter()
            outcome, response = await _respond(verb, answer, body)
        except _Unread as problem:
            self._on_answer(verb, "refused", 0.0)
            refused, keep = problem.why, False
        except BadRequest as problem:
            self._on_answer(verb, "refused", time.perf_counter() - started)
            refused = problem
        else:
            self._on_answer(verb, outcome, time.perf_counter() - started)
        finally:
            self._in_flight -= 1
        if refused is not None:
            return await self._refuse(request, refused, keep=keep)
        if outcome == Outcome.UNKNOWN:
            await self._pace()
        return response

    def _make_room(self) -> bool:
        """Ends the oldest request whose body is still under way, if there is one: slow bodies keep nobody out."""
        oldest = next(iter(self._reading), None)
        if oldest is None:
            return False
        del self._reading[oldest]
        oldest.reschedule(asyncio.get_running_loop().time())
        return True

    def _busy(self) -> BadRequest:
        return BadRequest(f"more than {self._limits.in_flight} requests are under way", 503, "requests in flight")

    async def _read(self, request: web.BaseRequest) -> bytes:
        """The body.

        Raises:
            _Unread: it is too large, too slow, or did not arrive whole.
        """
        limits = self._limits
        too_large = BadRequest(f"the body is larger than {limits.body // 1024**2} MiB", status=413, field="body size")
        if (request.content_length or 0) > limits.body:
            raise _Unread(too_large)
        parts, size, ended = [], 0, False
        try:
            async with asyncio.timeout(limits.read) as end:
                self._reading[end] = None
                try:
                    async for part in request.content.iter_any():
                        size += len(part)
                        if size > limits.body:
                            raise _Unread(too_large)
                        parts.append(part)
                finally:
                    ended = end not in self._reading
                    self._reading.pop(end, None)
        except TimeoutError as error:
            problem = BadRequest(f"the body did not arrive within {limits.read:g} s", status=408, field="body time")
            raise _Unread(self._busy() if ended else problem) from error
        except (ConnectionError, web.RequestPayloadError, HttpProcessingError) as error:
            raise _Unread(BadRequest(f"the body did not arrive whole: {error}", field="body end")) from error
        return b"".join(parts)

    async def _pace(self) -> None:
        # A caller that leaves meanwhile leaves the line too: nobody can make it longer than there are connections.
        async with self._line:
            loop = asyncio.get_running_loop()
            await asyncio.sleep(max(0.0, self._next - loop.time()))
            self._next = loop.time() + self._limits.pace

    async def _refuse(self, request: web.BaseRequest, problem: BadRequest, *, keep: bool) -> web.Response:
        self._on_refused(problem.field, request.remote or "", str(problem))
        await self._pace()
        response = _problem(problem.status, str(problem))
        if not keep:
            response.force_close()  # what is left of the body is not worth reading
        return response


class _Unread(Exception):
    """The body was not read to its end."""

    def __init__(self, why: BadRequest) -> None:
        super().__init__(str(why))
        self.why = why


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
        outcome = "scored" if guidance.known else Outcome.UNKNOWN
        return outcome, wire.encode(to_prioritize(guidance, args.node_names))

    async def preempt(self, body: bytes) -> _Answer:
        args = wire.decode(wire.preemption_args, body)
        if args.node_name_to_meta_victims is None:
            raise BadRequest(_NEEDS_NAMES)
        guidance = self._guidance(wire.to_asked(args.pod), tuple(args.node_name_to_meta_victims))
        result = to_preempt(guidance, args.node_name_to_meta_victims)
        found = "preempted" if result.node_name_to_meta_victims else "spared"
        return found if guidance.known else Outcome.UNKNOWN, wire.encode(result)

    async def bind(self, body: bytes) -> _Answer:
        args = wire.decode(wire.binding_args, body)
        names = (args.pod_namespace, args.pod_name, args.pod_uid, args.node)
        if self._bind is None or not all(names):
            raise BadRequest("the request lacks PodNamespace, PodName, PodUID or Node", field="binding")
        error = await self._bind(*(name or "" for name in names))
        return "refused" if error else "bound", wire.encode(wire.ExtenderBindingResult(error))

    def _guidance(self, asked: Asked, names: Sequence[str]) -> Guidance:
        guidance = self._guide.guidance(asked, names)
        if isinstance(guidance, str):
            raise _NotNow(guidance)
        return guidance


async def _respond(verb: str, answer: _Verb, body: bytes) -> tuple[str, web.Response]:
    # A body given as bytes goes out in one write with its headers, its length among them. Nothing follows the JSON: Go
    # reads no further than the value, and keeps the connection if that was all there is.
    try:
        outcome, text = await answer(body)
    except BadRequest:
        raise
    except _NotNow as reason:
        return "unready", _problem(503, str(reason))
    except Exception:  # noqa: BLE001 - whatever it is, the next pod is answered
        _log.exception("no answer for kube-scheduler", verb=verb)
        return "failed", _problem(500, "the extender failed; its log says why")
    return outcome, web.Response(body=text, content_type="application/json")


def _problem(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")
