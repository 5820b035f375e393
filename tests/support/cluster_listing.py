"""Everything that a cluster has, by the API server's own list of kinds."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeAlias

from thalweg_controlplane import Api, ApiError

Identity: TypeAlias = tuple[str, str, str]
"""Path of the kind, namespace and name."""
#: Kinds that record what happened, and go by themselves.
_RECORDS = {"events"}


async def kinds(api: Api) -> list[str]:
    """Paths of all kinds that can be listed, each in one version."""
    groups = (await api.get("/apis"))["groups"]
    versions = ["/api/v1", *(f"/apis/{each['preferredVersion']['groupVersion']}" for each in groups)]
    resources = await asyncio.gather(*(_unless_it_goes(api.get(version), {"resources": []}) for version in versions))
    return [
        f"{version}/{each['name']}"
        for version, found in zip(versions, resources, strict=True)
        for each in found["resources"]
        if "list" in each["verbs"] and "/" not in each["name"] and each["name"] not in _RECORDS
    ]


async def everything(api: Api) -> set[Identity]:
    """All objects of all kinds, but Events."""

    async def listed(path: str) -> set[Identity]:
        found = await _unless_it_goes(api.list(path), [])
        return {(path, each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in found}

    return set[Identity]().union(*await asyncio.gather(*(listed(path) for path in await kinds(api))))


async def _unless_it_goes(answer: Awaitable[Any], nothing: Any) -> Any:
    """An answer of the API server; `nothing` while a kind is removed or made."""
    try:
        return await answer
    except ApiError as error:
        if error.status in (404, 429, 503):
            return nothing
        raise
