"""ResourceClaimTemplates that pods of a question name: an operator watches none, and the asker may read their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from thalweg_operator.api.client import ApiClient, namespaced_path
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.errors import Refused

from flowcore.api.kinds import POD, RESOURCE_CLAIM_TEMPLATE
from flowcore.questions.scenario.alternatives.what_if import WhatIfQuery
from flowcore.questions.scenario.hypothetical.changes import PutObjects
from thalweg.sources.source import warn

_objects = JsonReader(dict[str, Any])
#: Namespace and name.
_Key = tuple[str, str]


async def with_claim_templates(client: ApiClient, query: msgspec.Struct) -> msgspec.Struct:
    """A question with the templates that its pods name and that it does not bring itself, as the API server has them.

    Those that are not there are left out. Those that cannot be read are named in a warning.

    Raises:
        ConnectionLost: the API server does not answer.
    """
    if not isinstance(query, WhatIfQuery):
        return query
    given = [each for change in query.changes if isinstance(change, PutObjects) for each in change.objects]
    brought = {_key(each) for each in given if each.get("kind") == RESOURCE_CLAIM_TEMPLATE.kind}
    named = {key for each in given if each.get("kind") == POD.kind for key in _named(each)}
    templates = [template for key in sorted(named - brought) if (template := await _read(client, key)) is not None]
    return msgspec.structs.replace(query, changes=[PutObjects(templates), *query.changes]) if templates else query


def _key(item: dict[str, Any]) -> _Key:
    metadata = item.get("metadata") or {}
    return metadata.get("namespace") or "default", str(metadata.get("name"))


def _named(pod: dict[str, Any]) -> Iterator[_Key]:
    for claim in (pod.get("spec") or {}).get("resourceClaims") or ():
        name = claim.get("resourceClaimTemplateName") if isinstance(claim, dict) else None
        if name:
            yield _key(pod)[0], str(name)


async def _read(client: ApiClient, key: _Key) -> dict[str, Any] | None:
    namespace, name = key
    kind = RESOURCE_CLAIM_TEMPLATE
    try:
        read = _objects.read(await client.request("GET", namespaced_path(kind, namespace, name)))
    except (Refused, UnreadableJson) as error:
        if not isinstance(error, Refused) or error.status != 404:
            warn([f"{kind.kind} {namespace}/{name} is not read: {error}"])
        return None
    return read | {"kind": kind.kind, "apiVersion": kind.api_version}
