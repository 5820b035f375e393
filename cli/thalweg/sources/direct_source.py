"""Questions that are answered here, from what the API server lists: no operator is needed."""

from __future__ import annotations

import time
from typing import Any, TypeVar

import msgspec
from thalweg_operator.api.client import ApiClient
from thalweg_operator.errors import ConnectionLost

from flowcore.questions.scenario import Scenario
from thalweg.dumps.reader import read_listing
from thalweg.sources.cluster_listing import list_objects
from thalweg.sources.dump_source import answer_here
from thalweg.sources.source import SourceError, SourceOperation, warn

_Answer = TypeVar("_Answer", bound=msgspec.Struct)


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

    async def scenario(self) -> Scenario:
        """Reads the whole cluster."""
        try:
            listing = await list_objects(self._client)
        except ConnectionLost as error:
            raise SourceError(f"cannot use the API server ({self._where}): {error}") from error
        scenario = read_listing(listing.objects, self._where, time.time(), listing.unread)
        scenario.warnings += listing.warnings
        return scenario
