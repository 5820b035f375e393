"""Questions to a running operator, through the API server's proxy to the Service of its view.

The proxy keeps the caller's ``Authorization`` to itself, so the token goes along in a header of its own, and the
operator asks the API server whose it is and what its owner may read. A kubeconfig with a client certificate has no
token: then a short-lived one of a service account is asked for, and the operator answers as to that account.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import msgspec
from thalweg_operator.api.client import ApiClient, api_path, connect
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.errors import ConnectionLost, Refused

from flowcore.scenario import Scenario
from thalweg.cluster_listing import list_objects
from thalweg.kubeconfig import users_kubeconfig
from thalweg.live_service import ServiceAddress, find_service
from thalweg.option_types import NamespacedName
from thalweg.reader import read_listing
from thalweg.source import SourceError, SourceOperation, SourceOptions

_Answer = TypeVar("_Answer", bound=msgspec.Struct)

TOKEN_HEADER: Final = "X-Thalweg-Token"  # noqa: S105 - the name of a header
#: Ends of the names that the chart gives the Service, and the service account for people without a token.
_SERVICE_END, _VIEWER_END = "-view", "-viewer"
#: Seconds that a token of it is valid: the least that the API server grants.
_TOKEN_LIFE = 600
#: Seconds for one answer: longer than the operator gives itself.
_ANSWER_WITHIN = 40.0
_CONNECTIONS = 4


class _TokenStatus(msgspec.Struct):
    token: str


class _TokenRequest(msgspec.Struct):
    status: _TokenStatus


class _Problem(msgspec.Struct):
    """An error of the operator; an API server's answer lacks the field."""

    error: str


_tokens, _problems = JsonReader(_TokenRequest), JsonReader(_Problem)


class LiveSource:
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
        #: Token of the service account, and until when it is shown, by the clock of time.monotonic().
        self._lent: tuple[str, float] = ("", 0.0)

    async def ask(self, question: SourceOperation[Any, _Answer], query: msgspec.Struct) -> _Answer:
        """See ``Source``."""
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

    async def scenario(self) -> Scenario:
        """See ``Source``. The API server lists the objects: the caller's own rights decide what is read."""
        try:
            listing = await list_objects(self._client)
        except ConnectionLost as error:
            raise SourceError(f"cannot use the API server ({self._where}): {error}") from error
        scenario = read_listing(listing.objects, self._where, time.time())
        scenario.warnings += listing.warnings
        return scenario

    async def _request(
        self, method: str, operation: str, *, body: bytes | None = None, params: Mapping[str, str] | None = None
    ) -> bytes:
        try:
            if self._service is None:
                self._service = await find_service(self._client, self._options.service)
            path = api_path(self._service.proxy_path, "api", "v1", *operation.split("/"))
            headers = {TOKEN_HEADER: await self._token(self._service)}
            return await self._client.request(
                method, path, body=body, params=params, headers=headers, seconds=_ANSWER_WITHIN
            )
        except ConnectionLost as error:
            raise SourceError(f"cannot use the API server ({self._where}): {error}") from error
        except Refused as error:
            raise SourceError(_sentence(error, self._service, operation)) from error

    async def _token(self, service: ServiceAddress) -> str:
        file = self._options.token_file
        if file is not None:
            try:
                return file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise SourceError(f"--token-file {file} cannot be read: {error}") from error
        if self._options.service_account is None and (token := await self._client.token()):
            return token
        token, until = self._lent
        if time.monotonic() >= until:
            release = service.name.removesuffix(_SERVICE_END)
            viewer = NamespacedName(service.namespace, f"{release}{_VIEWER_END}")
            account = self._options.service_account or viewer
            token, until = await self._account_token(account), time.monotonic() + _TOKEN_LIFE / 2
            self._lent = token, until
        return token

    async def _account_token(self, account: NamespacedName) -> str:
        wanted = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _TOKEN_LIFE},
        }
        path = api_path("/api/v1/namespaces", account.namespace, "serviceaccounts", account.name, "token")
        try:
            return _tokens.read(await self._client.request("POST", path, body=msgspec.json.encode(wanted))).status.token
        except (Refused, UnreadableJson) as error:
            raise SourceError(
                f"the login has no token to show to the operator, and service account {account} gives none: {error}. "
                "Name another one with --service-account, or a token with --token-file"
            ) from error


@asynccontextmanager
async def live_source(options: SourceOptions) -> AsyncIterator[LiveSource]:
    """The operator of the cluster that the options name.

    Raises:
        SourceError: the kubeconfig cannot be used.
    """
    kubeconfig, where = users_kubeconfig(options.kubeconfig)
    try:
        async with connect(kubeconfig, _CONNECTIONS, context=options.context) as client:
            yield LiveSource(client, options, where)
    except ConnectionLost as error:
        advice = ". Give --filename to ask a dump, or --kubeconfig to ask a cluster" if kubeconfig is None else ""
        raise SourceError(f"cannot use the API server ({where}): {error}{advice}") from error


def _parameters(query: msgspec.Struct) -> dict[str, str]:
    fields = msgspec.to_builtins(query, str_keys=True)
    return {name: str(value) for name, value in fields.items() if value not in ("", None)}


def _sentence(error: Refused, service: ServiceAddress | None, operation: str) -> str:
    """What to tell of a refusal, of the operator or of the API server on the way to it."""
    try:
        return _problems.read(error.answer).error
    except UnreadableJson:
        pass
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
