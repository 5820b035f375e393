"""The listener for kube-scheduler."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache

import thalweg_listener
from aiohttp import web

from thalweg_extender.certificates import Certificates
from thalweg_extender.errors import ListenError
from thalweg_extender.extender_limits import DEFAULT_LIMITS, ExtenderLimits
from thalweg_extender.plan_view import OnAnswer, OnClient, OnRefused, PlanView
from thalweg_extender.server import VerbDispatcher


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

    async def answer(request: web.BaseRequest) -> web.Response:
        certificate = request.get_extra_info("peercert")
        if certificate:
            on_client(_expiration(certificate["notAfter"]))
        return await requests.answer(request)

    try:
        async with thalweg_listener.listening(host, port, answer, limits, on_refused, tls) as chosen:
            yield chosen
    except thalweg_listener.CannotListen as error:
        raise ListenError(f"{error} for kube-scheduler") from error


@lru_cache(maxsize=16)
def _expiration(not_after: str) -> float:
    """Seconds since the epoch, of a certificate's text."""
    return ssl.cert_time_to_seconds(not_after)
