"""The listener for kube-scheduler."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import thalweg_listener
from aiohttp import web

from thalweg_extender.certificates import Certificates
from thalweg_extender.errors import ListenError
from thalweg_extender.extender_limits import DEFAULT_LIMITS, ExtenderLimits
from thalweg_extender.plan_view import OnAnswer, OnClient, OnRefused, PlanView
from thalweg_extender.server import PREFIX, VerbDispatcher


@asynccontextmanager
async def listening(
    host: str,
    port: int,
    plan_view: PlanView,
    *,
    certificates: Certificates | None = None,
    on_answer: OnAnswer = lambda _verb, _outcome, _seconds: None,
    on_client: OnClient = lambda _expiration: None,
    on_refused: OnRefused = lambda _field, _name, _problem: None,
    limits: ExtenderLimits = DEFAULT_LIMITS,
) -> AsyncIterator[int]:
    """Serves the extender while the block runs; yields the port.

    Args:
        host: address or host name; "": all addresses.
        port: port; 0: any free port.
        plan_view: gives advice about pods.
        certificates: None: plain HTTP.
        on_answer, on_refused: see ``VerbDispatcher``.
        on_client: called for each request of a client with a certificate.
        limits: limits of the listener.

    Raises:
        ListenError: the address is in use, or not an address of this machine.
    """
    requests = VerbDispatcher(plan_view, limits, on_answer, on_refused)
    tls = None if certificates is None else certificates.context

    def met(certificate: Mapping[str, Any] | None) -> None:
        if certificate:
            on_client(_expiration(certificate["notAfter"]))

    async def answer(request: web.BaseRequest) -> web.Response:
        met(request.get_extra_info("peercert"))
        return await requests.answer(request)

    at_once = _FilterAtOnce(requests, met)
    try:
        async with thalweg_listener.listening(host, port, answer, limits, on_refused, tls, at_once) as chosen:
            yield chosen
    except thalweg_listener.CannotListen as error:
        raise ListenError(f"{error} for kube-scheduler") from error


@dataclass(frozen=True)
class _FilterAtOnce:
    """The verb filter where the answer waits for nothing."""

    requests: VerbDispatcher
    met: Callable[[Mapping[str, Any] | None], None]
    path: bytes = f"{PREFIX}/filter".encode()
    largest: int = 64 * 1024

    def answer(
        self, body: bytes, transport: asyncio.BaseTransport
    ) -> thalweg_listener.AnswerMade | asyncio.Future[None] | None:
        self.met(transport.get_extra_info("peercert"))
        return self.requests.filter_at_once(body)


@lru_cache(maxsize=16)
def _expiration(not_after: str) -> float:
    """Seconds since the epoch, of a certificate's text."""
    return ssl.cert_time_to_seconds(not_after)
