"""Asks the operator's view for its page: by the API server's proxy of its Service, or at a URL."""

from __future__ import annotations

from dataclasses import dataclass

import aiohttp
from thalweg_operator.api.client import ApiClient, api_path
from thalweg_operator.errors import Refused

from thalweg.option_types import NamespacedName
from thalweg.sources.operator_view.live import problem_of
from thalweg.sources.operator_view.live_service import find_service

#: Bytes that are read of an answer that is no page: a sentence.
_MOST_OF_ANSWER = 10_000


@dataclass(frozen=True, slots=True)
class ViewAnswer:
    """What a view answers.

    Attributes:
        where: the Service or the URL.
        problem: why it gave no page; "": it gave one.
    """

    where: str
    problem: str = ""


async def ask_service(api_client: ApiClient, service: NamespacedName, seconds: float) -> ViewAnswer | None:
    """What stands behind the Service; None: there is no such Service.

    Raises:
        Refused: the caller may not read the Service, or not use the API server's proxy.
        ConnectionLost: the API server does not answer.
        SourceError: the Service has no port.
    """
    try:
        await api_client.request("GET", api_path("/api/v1/namespaces", service.namespace, "services", service.name))
    except Refused as error:
        if error.status == 404:
            return None
        raise
    address = await find_service(api_client, service)
    where = f"Service {service}"
    try:
        await api_client.request("GET", f"{address.proxy_path}/", seconds=seconds)
    except Refused as error:
        if error.status == 403:
            raise
        problem = _problem(error.status, error.answer, error.reason)
        if error.status == 404 and not problem_of(error.answer):
            # Of a Service without Endpoints the API server says that the Service is not found.
            problem = "no operator has written its Endpoints"
        return ViewAnswer(where, problem)
    return ViewAnswer(where)


async def ask_url(url: str, seconds: float) -> ViewAnswer:
    """What stands behind a URL. No token is sent."""
    try:
        timeout = aiohttp.ClientTimeout(total=seconds)
        # Nothing secret is sent, and the view's own certificate is signed by nobody.
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, ssl=False) as answer:
            if answer.status == 200:
                return ViewAnswer(url)
            return ViewAnswer(url, _problem(answer.status, await answer.content.read(_MOST_OF_ANSWER)))
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        return ViewAnswer(url, str(error) or f"no answer within {seconds:g} s")


def _problem(status: int, answer: bytes, reason: str = "") -> str:
    """What is wrong, in the words of the view, or of who answers in its place (``reason``)."""
    said = problem_of(answer) or reason
    return f"{status}: {said}" if said else f"it answers {status}"
