"""Questions to a running operator, through the API server's proxy to the Service of its view.

The proxy keeps the caller's ``Authorization`` to itself, so a token goes along in a header of its own, and the operator
asks the API server whose it is and what its owner may read. It is never the login's own token: a short-lived one of a
service account is asked for, which is good for the view alone, and the operator answers as to that account.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
from thalweg_operator.api.client import ApiClient, api_path
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.errors import ConnectionLost, Refused

from thalweg.sources.operator_view.live_service import ServiceAddress, find_service
from thalweg.sources.operator_view.view_token import ViewToken
from thalweg.sources.source import SourceError, SourceOperation, SourceOptions

_Answer = TypeVar("_Answer", bound=msgspec.Struct)

TOKEN_HEADER: Final = "X-Thalweg-Token"  # noqa: S105 - the name of a header
#: Seconds for one answer: longer than the operator gives itself.
ANSWER_WITHIN = 40.0


class _Problem(msgspec.Struct):
    """An error of the operator; an API server's answer lacks the field."""

    error: str


_problems = JsonReader(_Problem)


class LiveOperator:
    """The operator of one cluster.

    Attributes:
        namespace: of names without a namespace.
    """

    def __init__(self, client: ApiClient, options: SourceOptions, where: str) -> None:
        """A source.

        Args:
            where: what names the cluster, for messages.
        """
        self._client, self._options, self._where = client, options, where
        self.namespace = options.namespace or client.credentials.namespace
        self._service: ServiceAddress | None = None
        self._token = ViewToken(client, options)

    async def ask(self, question: SourceOperation[Any, _Answer], query: msgspec.Struct) -> _Answer:
        """Answers a question."""
        if question.method == "POST":
            answer = await self._request("POST", question.operation, body=msgspec.json.encode(query))
        else:
            answer = await self._request("GET", question.operation, params=_parameters(query))
        try:
            return msgspec.json.decode(answer, type=question.answer_type)
        except msgspec.DecodeError as error:
            raise SourceError(
                f"the operator's answer to {question.operation} cannot be read: {error}. It may be another version "
                "than this command"
            ) from error

    async def _request(
        self, method: str, operation: str, *, body: bytes | None = None, params: Mapping[str, str] | None = None
    ) -> bytes:
        try:
            if self._service is None:
                self._service = await find_service(self._client, self._options.service)
            path = api_path(self._service.proxy_path, "api", "v1", *operation.split("/"))
            headers = {TOKEN_HEADER: await self._token.get(self._service)}
            return await self._client.request(
                method, path, body=body, params=params, headers=headers, seconds=ANSWER_WITHIN
            )
        except ConnectionLost as error:
            raise SourceError(f"cannot use the API server ({self._where}): {error}") from error
        except Refused as error:
            raise SourceError(_sentence(error, self._service, operation)) from error


def problem_of(answer: bytes) -> str:
    """What the operator says of a request that it refuses; "": the answer is not the operator's."""
    try:
        return _problems.read(answer).error
    except UnreadableJson:
        return ""


def _parameters(query: msgspec.Struct) -> dict[str, str]:
    fields = msgspec.to_builtins(query, str_keys=True)
    return {name: str(value) for name, value in fields.items() if value not in ("", None) and value is not False}


def _sentence(error: Refused, service: ServiceAddress | None, operation: str) -> str:
    """What to tell of a refusal, of the operator or of the API server on the way to it."""
    if problem := problem_of(error.answer):
        return problem
    if service is None:
        return (
            f"the API server does not say which Service leads to the operator's view: {error}. Name it with "
            "--service NAMESPACE/NAME"
        )
    verb = "create and get" if operation else "get"
    match error.status:
        case 403:
            advice = f"Ask for the right to {verb} services/proxy of {service.name} in namespace {service.namespace}"
        case 404:
            advice = "Name another Service with --service NAMESPACE/NAME, or install the chart with view.enabled=true"
        case _:
            advice = "Is the operator running, with its view on (`thalweg run --view-listen`)?"
    return f"the operator's view, Service {service}, cannot be reached: {error}. {advice}"
