"""Everything that a cluster has, by the API server's own list of kinds."""

import asyncio
from typing import TypeAlias

from thalweg_controlplane import Api, ApiError

Identity: TypeAlias = tuple[str, str, str]
"""Path of the kind, namespace and name."""
#: Kinds that record what happened, and go by themselves.
_RECORDS = {"events"}


async def kinds(api: Api) -> list[str]:
    """Paths of all kinds that can be listed, each in one version."""
    groups = (await api.get("/apis"))["groups"]
    versions = ["/api/v1", *(f"/apis/{each['preferredVersion']['groupVersion']}" for each in groups)]
    lists = await asyncio.gather(*(api.get(version) for version in versions))
    return [
        f"{version}/{each['name']}"
        for version, found in zip(versions, lists, strict=True)
        for each in found["resources"]
        if "list" in each["verbs"] and "/" not in each["name"] and each["name"] not in _RECORDS
    ]


async def everything(api: Api) -> set[Identity]:
    """All objects of all kinds, but Events."""

    async def listed(path: str) -> set[Identity]:
        try:
            found = await api.list(path)
        except ApiError as error:
            if error.status in (404, 429):  # the kind is going, or coming
                return set()
            raise
        return {(path, each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in found}

    return set[Identity]().union(*await asyncio.gather(*(listed(path) for path in await kinds(api))))
