"""The extender's verbs over HTTP: POST to /extender/filter, /prioritize and /preempt.

kube-scheduler prints the ``Error`` of a filter response. For any status other than 200 it prints only the code;
the texts of such responses are for people with curl.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

import structlog
from aiohttp import web
from aiohttp.http import HttpProcessingError
from thalweg_listener import AnswerMade

from flowcore.model.advice import Advice, ExtenderPod
from thalweg_extender import wire
from thalweg_extender.answers import FilterOutcome, to_filter, to_preempt, to_prioritize
from thalweg_extender.errors import BadRequest
from thalweg_extender.extender_limits import ExtenderLimits
from thalweg_extender.plan_view import OnAnswer, OnRefused, PlanView

#: Path of kube-scheduler's urlPrefix.
PREFIX: Final = "/extender"
_NEEDS_NAMES: Final = "set nodeCacheCapable: true for this extender in KubeSchedulerConfiguration: it needs node names"

_log = structlog.get_logger()

#: Outcome of a request in a word, and the body of the response.
_Answer = tuple[str, bytes]
_VerbHandler = Callable[[bytes], Awaitable[_Answer]]


class VerbDispatcher:
    """Answers requests, a limited number at a time.

    Args:
        plan_view: gives advice about pods.
        limits: limits of the listener.
        on_answer: called after each response. Its second argument is steered, held, unknown, passed, scored, spared,
            preempted, refused (the request was invalid), busy, unready or failed.
        on_refused: called for each refused request.
    """

    def __init__(self, plan_view: PlanView, limits: ExtenderLimits, on_answer: OnAnswer, on_refused: OnRefused) -> None:
        self._limits = limits
        self._on_answer, self._on_refused = on_answer, on_refused
        self._answers = answers = _Verbs(plan_view)
        verbs: dict[str, _VerbHandler] = {
            "filter": answers.filter,
            "prioritize": answers.prioritize,
            "preempt": answers.preempt,
        }
        self._verbs = {f"{PREFIX}/{verb}": (verb, answer) for verb, answer in verbs.items()}
        self._in_flight = 0
        #: Timeouts of the requests whose bodies are incomplete, the oldest first.
        self._reading: dict[asyncio.Timeout, None] = {}
        #: Paces unhelpful responses: time when the next one may be sent.
        self._pace_lock, self._next_unhelpful = asyncio.Lock(), 0.0

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """The response to any request."""
        await asyncio.sleep(0)  # connections take turns, also if one of them sends many requests at once
        verb, answer = self._verbs.get(request.path, ("", None))
        if answer is None or request.method != "POST":
            status = 404 if answer is None else 405
            return await self._refuse(request, BadRequest("POST a verb to /extender/VERB", status, "path"), keep=True)
        if self._in_flight >= self._limits.in_flight and not self._abort_oldest_body():
            self._on_answer(verb, "busy", 0.0)
            busy = self._busy_error()
            self._on_refused(busy.field, request.remote or "", str(busy))
            response = _problem_response(busy.status, str(busy))
            response.headers["Retry-After"] = "1"
            response.force_close()  # its body is not read
            return response
        self._in_flight += 1
        refused: BadRequest | None = None
        keep = True
        try:
            body = await self._read(request)
            started = time.perf_counter()
            outcome, response = await self._respond(verb, answer, body)
        except _BodyError as problem:
            self._on_answer(verb, "refused", 0.0)
            refused, keep = problem.reason, False
        except BadRequest as problem:
            self._on_answer(verb, "refused", time.perf_counter() - started)
            refused = problem
        else:
            self._on_answer(verb, outcome, time.perf_counter() - started)
        finally:
            self._in_flight -= 1
        if refused is not None:
            return await self._refuse(request, refused, keep=keep)
        if outcome == FilterOutcome.UNKNOWN:
            await self._pace()
        return response

    def filter_at_once(self, body: bytes) -> AnswerMade | asyncio.Future[None] | None:
        """The response to a request of filter; None: it waits, or is one that ``answer`` answers better.

        A future: it is worth another call when that ends.
        """
        started = time.perf_counter()
        try:
            self._answers.check_ready()
            answered = self._answers.filter_at_once(body)
        except (BadRequest, _Unready):
            return None
        except Exception:  # noqa: BLE001 - one bad request must not stop the server
            _log.exception("request failed", verb="filter")
            return None
        if not isinstance(answered, _Filtered):
            return answered
        filtered, seconds = answered, time.perf_counter() - started

        def when_written() -> None:
            try:
                filtered.tell()
            except Exception:  # noqa: BLE001 - as above
                _log.exception("answer not noted", verb="filter")
            self._on_answer("filter", filtered.outcome, seconds)

        return AnswerMade(filtered.body, when_written)

    async def _respond(self, verb: str, answer: _VerbHandler, body: bytes) -> tuple[str, web.Response]:
        # aiohttp sends a body of bytes in one write with its headers, Content-Length included. Nothing may follow the
        # JSON: Go stops reading at its end, and keeps the connection only if the body ends there.
        try:
            self._answers.check_ready()
            outcome, text = await answer(body)
        except _Unready as problem:
            response = _problem_response(503, str(problem))
            response.force_close()  # the client's next connection may lead to the leader
            return "unready", response
        except BadRequest:
            raise
        except Exception:  # noqa: BLE001 - one bad request must not stop the server
            _log.exception("request failed", verb=verb)
            return "failed", _problem_response(500, "internal error of the extender; read the operator's log")
        return outcome, web.Response(body=text, content_type="application/json")

    def _abort_oldest_body(self) -> bool:
        """Aborts the oldest request with an incomplete body; returns whether there was one."""
        oldest = next(iter(self._reading), None)
        if oldest is None:
            return False
        del self._reading[oldest]
        oldest.reschedule(asyncio.get_running_loop().time())
        return True

    def _busy_error(self) -> BadRequest:
        return BadRequest(f"more than {self._limits.in_flight} requests are in flight", 503, "requests in flight")

    async def _read(self, request: web.BaseRequest) -> bytes:
        """Reads the body.

        Raises:
            _BodyError: the body is too large, too slow, or did not arrive whole.
        """
        limits = self._limits
        too_large = BadRequest(f"the body is larger than {limits.body // 1024**2} MiB", status=413, field="body size")
        if (request.content_length or 0) > limits.body:
            raise _BodyError(too_large)
        parts, size, ended = [], 0, False
        try:
            async with asyncio.timeout(limits.read) as end:
                self._reading[end] = None
                try:
                    async for chunk in request.content.iter_any():
                        size += len(chunk)
                        if size > limits.body:
                            raise _BodyError(too_large)
                        parts.append(chunk)
                finally:
                    ended = end not in self._reading
                    self._reading.pop(end, None)
        except TimeoutError as error:
            problem = BadRequest(f"the body did not arrive within {limits.read:g} s", status=408, field="body time")
            raise _BodyError(self._busy_error() if ended else problem) from error
        except (ConnectionError, web.RequestPayloadError, HttpProcessingError) as error:
            raise _BodyError(BadRequest(f"the body is incomplete: {error}", field="body end")) from error
        return b"".join(parts)

    async def _pace(self) -> None:
        # A disconnect cancels the wait, so there are never more waiting requests than connections.
        async with self._pace_lock:
            loop = asyncio.get_running_loop()
            await asyncio.sleep(max(0.0, self._next_unhelpful - loop.time()))
            self._next_unhelpful = loop.time() + self._limits.unhelpful_interval

    async def _refuse(self, request: web.BaseRequest, problem: BadRequest, *, keep: bool) -> web.Response:
        self._on_refused(problem.field, request.remote or "", str(problem))
        await self._pace()
        response = _problem_response(problem.status, str(problem))
        if not keep:
            response.force_close()  # the rest of the body is not read
        return response


class _BodyError(Exception):
    """The body was not read to its end."""

    def __init__(self, reason: BadRequest) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _Filtered:
    """An answer of filter; ``tell`` notes that it was given, and comes before anything else happens."""

    outcome: str
    body: bytes
    tell: Callable[[], None]


class _Unready(Exception):
    """No request can be answered now; the message says why."""


class _Verbs:
    """The verbs, each from the body of the request to the body of the response."""

    def __init__(self, plan_view: PlanView) -> None:
        self._plan_view = plan_view

    def check_ready(self) -> None:
        """Raises _Unready where no verb can be answered now."""
        if reason := self._plan_view.unavailable():
            raise _Unready(reason)

    async def filter(self, body: bytes) -> _Answer:
        args = wire.decode(wire.extender_args, body)
        if args.node_names is None:
            return "refused", wire.encode(wire.ExtenderFilterResult(error=_NEEDS_NAMES))
        extender_pod = wire.to_extender_pod(args.pod)
        await self._plan_view.until_planned(extender_pod, args.node_names)
        self.check_ready()
        filtered = self._filter(extender_pod, args.node_names, self._advise(extender_pod, args.node_names))
        filtered.tell()
        return filtered.outcome, filtered.body

    def filter_at_once(self, body: bytes) -> _Filtered | asyncio.Future[None] | None:
        """The same; None: it waits for a plan, or the pod is not known; a future: the pod may be known after that."""
        extender_pod, node_names = _question(body)
        if node_names is None:
            return None
        is_planned = self._plan_view.planned_at_once(extender_pod, node_names)
        if is_planned is not True:
            return is_planned or None
        advice = self._advise(extender_pod, node_names)
        return self._filter(extender_pod, node_names, advice) if advice.known else None

    def _filter(self, extender_pod: ExtenderPod, node_names: Sequence[str], advice: Advice) -> _Filtered:
        outcome, passed, result = to_filter(advice, node_names)
        tell = partial(self._plan_view.answered, extender_pod, advice, outcome, passed)
        return _Filtered(outcome, wire.encode(result), tell)

    async def prioritize(self, body: bytes) -> _Answer:
        args = wire.decode(wire.extender_args, body)
        if args.node_names is None:
            raise BadRequest(_NEEDS_NAMES)
        advice = self._advise(wire.to_extender_pod(args.pod), args.node_names)
        outcome = "scored" if advice.known else FilterOutcome.UNKNOWN
        return outcome, wire.encode(to_prioritize(advice, args.node_names))

    async def preempt(self, body: bytes) -> _Answer:
        args = wire.decode(wire.preemption_args, body)
        if args.node_name_to_meta_victims is None:
            raise BadRequest(_NEEDS_NAMES)
        advice = self._advise(wire.to_extender_pod(args.pod), tuple(args.node_name_to_meta_victims))
        result = to_preempt(advice, args.node_name_to_meta_victims)
        outcome = "preempted" if result.node_name_to_meta_victims else "spared"
        return outcome if advice.known else FilterOutcome.UNKNOWN, wire.encode(result)

    def _advise(self, extender_pod: ExtenderPod, node_names: Sequence[str]) -> Advice:
        return self._plan_view.advise(extender_pod, node_names)


@lru_cache(maxsize=1)  # of a pod that our watch has not shown the same bytes come again
def _question(body: bytes) -> tuple[ExtenderPod, list[str] | None]:
    """The pod and the nodes of a request of filter; None: it has whole nodes, or none.

    Raises:
        BadRequest: see ``wire.decode`` and ``wire.to_extender_pod``.
    """
    args = wire.decode(wire.extender_args, body)
    return wire.to_extender_pod(args.pod), args.node_names


def _problem_response(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")
