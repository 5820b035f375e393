"""Lists the objects of a cluster that a plan depends on, as ``kubectl get`` would for a dump."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.json_reading import JsonReader
from thalweg_operator.errors import Refused

from flowcore.api.gang_parents import rules_in
from flowcore.api.kinds import IN_DUMPS, KINDS, NODE, POD, ObjectKind
from thalweg.sources.source import SourceError

_PAGE: Final = "500"
#: Without these there is no plan.
_NEEDED: Final = (NODE, POD)


class _PageMetadata(msgspec.Struct, frozen=True):
    continue_: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    items: list[dict[str, Any]]
    metadata: _PageMetadata = _PageMetadata()


_pages = JsonReader(_Page)


@dataclass(slots=True)
class Listing:
    """What an API server lists.

    Attributes:
        objects: each with its kind and version.
        warnings: sentences about kinds that the caller may not list.
        unread: these kinds.
    """

    objects: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)


async def list_objects(client: ApiClient) -> Listing:
    """All objects of all kinds that are read, also of those that its policies name as parents of gangs.

    Kinds that the API server does not serve have none.

    Raises:
        SourceError: the API server lists no nodes or no pods.
        ConnectionLost: it does not answer.
    """
    listing = Listing()
    await _list(client, (*KINDS, *IN_DUMPS), listing)
    await _list(client, [kind for kind, _ in rules_in(listing.objects).values()], listing)
    return listing


async def _list(client: ApiClient, kinds: Iterable[ObjectKind], listing: Listing) -> None:
    for kind in kinds:
        try:
            listing.objects += [each async for each in _objects(client, kind)]
        except Refused as error:
            if kind in _NEEDED:
                raise SourceError(
                    f"the API server does not list {kind.plural}: {error}. A plan needs all nodes and pods of the "
                    f"cluster. Ask for the right to list {kind.plural}, or for an operator with a view, which answers "
                    "who may not list them"
                ) from error
            group = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
            listing.warnings.append(f"{group} are not read: {error}")
            listing.unread.add(kind.kind)


async def _objects(client: ApiClient, kind: ObjectKind) -> AsyncIterator[dict[str, Any]]:
    for path, version in zip(kind.paths, kind.versions, strict=True):
        params = {"limit": _PAGE}
        while True:
            try:
                page = _pages.read(await client.request("GET", path, params=params))
            except Refused as error:
                if error.status == 404:
                    break
                raise
            of_kind = {"kind": kind.kind, "apiVersion": f"{kind.group}/{version}" if kind.group else version}
            for item in page.items:
                yield of_kind | item
            if not page.metadata.continue_:
                return
            params["continue"] = page.metadata.continue_
