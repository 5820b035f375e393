"""A live cluster: its operator answers where it has a view; else the question is answered here."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import msgspec
from thalweg_operator.api.client import ApiClient, connect, pod_path
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.errors import ConnectionLost, Refused

from flowcore.questions.scenario import Scenario
from thalweg.dumps.reader import read_listing
from thalweg.kubeconfig import users_kubeconfig
from thalweg.sources.claim_templates import with_claim_templates
from thalweg.sources.cluster_listing import Listing, list_objects
from thalweg.sources.dump_source import answer_here
from thalweg.sources.operator_view.live import LiveOperator
from thalweg.sources.operator_view.live_service import NoView
from thalweg.sources.operator_view.server_operator import ServerOperator, server_session
from thalweg.sources.source import Source, SourceError, SourceOperation, SourceOptions, warn
from thalweg.terminal.telling import tell_note

_Answer = TypeVar("_Answer", bound=msgspec.Struct)

_CONNECTIONS: Final = 4
_objects = JsonReader(dict[str, Any])


class DirectSource:
    """The objects of one cluster, listed anew for each question.

    The caller's own rights decide what is read. Kinds that the caller may not list are named in warnings, once.

    Attributes:
        namespace: of names without a namespace.
    """

    def __init__(self, client: ApiClient, namespace: str, where: str) -> None:
        """A source.

        Args:
            where: what names the cluster, for messages.
        """
        self._client, self.namespace, self._where = client, namespace, where

    async def ask(self, question: SourceOperation[Any, _Answer], query: msgspec.Struct) -> _Answer:
        """Answers a question."""
        scenario = await self.scenario()
        warn(scenario.warnings)
        return answer_here(question, scenario, query)

    async def with_claim_templates(self, query: msgspec.Struct) -> msgspec.Struct:
        """A question for the operator with what its pods name and the operator does not know.

        Raises:
            SourceError: the API server does not answer.
        """
        try:
            return await with_claim_templates(self._client, query)
        except ConnectionLost as error:
            raise SourceError(f"cannot use the API server ({self._where}): {error}") from error

    async def pods(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """The pods as the API server shows them to the caller."""
        pods = []
        for key in keys:
            namespace, _, name = key.partition("/")
            try:
                pods.append(_objects.read(await self._client.request("GET", pod_path(namespace, name))))
            except (ConnectionLost, Refused, UnreadableJson) as error:
                raise SourceError(f"pod {key} cannot be read ({self._where}): {error}") from error
        return pods

    async def scenario(self) -> Scenario:
        """Reads the whole cluster."""
        try:
            listing = await list_objects(self._client)
        except ConnectionLost as error:
            raise SourceError(f"cannot use the API server ({self._where}): {error}") from error
        scenario = read_listing(listing.objects, self._where, time.time(), listing.unread)
        scenario.warnings += listing.warnings
        return scenario


class ClusterSource:
    """A live cluster as a source: its operator's view, else its objects.

    Attributes:
        namespace: of names without a namespace.
    """

    def __init__(self, operator: LiveOperator, objects: DirectSource) -> None:
        self._operator: LiveOperator | None = operator
        self._objects, self.namespace = objects, objects.namespace

    async def ask(self, question: SourceOperation[Any, _Answer], query: msgspec.Struct) -> _Answer:
        """Answers a question."""
        if self._operator is not None:
            try:
                return await self._operator.ask(question, await self._objects.with_claim_templates(query))
            except NoView as error:
                self._operator = None
                tell_note(f"planned here, as with --direct: {error}")
        return await self._objects.ask(question, query)

    async def scenario(self) -> Scenario:
        """Reads the whole cluster."""
        return await self._objects.scenario()

    async def pods(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """The pods, by the caller's own rights."""
        return await self._objects.pods(keys)


@asynccontextmanager
async def cluster_source(options: SourceOptions) -> AsyncIterator[Source]:
    """The cluster that the options name.

    Raises:
        SourceError: the kubeconfig cannot be used.
    """
    async with _connected(options) as (client, where):
        objects = DirectSource(client, options.namespace or client.credentials.namespace, where)
        if options.direct:
            yield objects
        elif options.server:
            async with server_session(options) as session:
                yield ClusterSource(ServerOperator(client, options, where, session), objects)
        else:
            yield ClusterSource(LiveOperator(client, options, where), objects)


async def listed_objects(options: SourceOptions) -> Listing:
    """All objects of the cluster that plans depend on.

    Raises:
        SourceError: the kubeconfig cannot be used, or the API server lists no nodes or no pods.
    """
    async with _connected(options) as (client, _):
        return await list_objects(client)


@asynccontextmanager
async def _connected(options: SourceOptions) -> AsyncIterator[tuple[ApiClient, str]]:
    """A client, and what names the cluster in messages."""
    kubeconfig, where = users_kubeconfig(options.kubeconfig)
    try:
        async with connect(kubeconfig, _CONNECTIONS, context=options.context) as client:
            yield client, where
    except ConnectionLost as error:
        advice = ". Give --filename to ask a dump, or --kubeconfig to ask a cluster" if kubeconfig is None else ""
        raise SourceError(f"cannot use the API server ({where}): {str(error).rstrip('.')}{advice}") from error
