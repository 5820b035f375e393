"""Requests about ResourceClaims. Each answer shows the claim as it is, so that nothing is read beside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from flowcore.api.kinds import RESOURCE_CLAIM
from flowcore.api.resource_claims import FIELD_MANAGER, WireDeviceClaim, to_resource_claim
from flowcore.model.errors import ModelError
from flowcore.model.resource_claims import ResourceClaim
from thalweg_operator.api.client import STRATEGIC_MERGE_PATCH, ApiClient, namespaced_path
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.errors import ConnectionLost
from thalweg_operator.reservations.effects import ReleasedClaim
from thalweg_operator.shell import Shell

#: The API server remembers what was written under this name.
PARAMS: Final = {"fieldManager": FIELD_MANAGER}
_claims = JsonReader(WireDeviceClaim)


class ClaimNotToBeHad(Exception):
    """A claim cannot be had as planned; the message says why."""


@dataclass(frozen=True, slots=True)
class ShownClaim:
    """A claim as an answer shows it."""

    claim: ResourceClaim
    version: str
    raw: bytes


class ClaimApi:
    """Creates, changes and deletes claims.

    All methods raise ``ConnectionLost`` where there was no answer, or it cannot be read, and ``Refused`` where the API
    server refuses.
    """

    def __init__(self, api_client: ApiClient, shell: Shell) -> None:
        self._api_client, self._shell = api_client, shell

    async def create(self, namespace: str, body: Mapping[str, Any]) -> ShownClaim:
        """Makes a claim."""
        path = namespaced_path(RESOURCE_CLAIM, namespace)
        raw = await self._api_client.request("POST", path, body=msgspec.json.encode(body), params=PARAMS)
        return self._shown(path, raw)

    async def patch(
        self,
        ref: ReleasedClaim,
        body: Mapping[str, Any],
        subresource: str = "",
        content_type: str = STRATEGIC_MERGE_PATCH,
    ) -> ShownClaim:
        """Changes a claim; the claim after that."""
        path = namespaced_path(RESOURCE_CLAIM, ref.namespace, ref.name, *([subresource] if subresource else []))
        raw = await self._api_client.request(
            "PATCH", path, body=msgspec.json.encode(body), content_type=content_type, params=PARAMS
        )
        return self._shown(path, raw)

    async def delete(self, shown: ShownClaim) -> None:
        """Deletes a claim, unless it has changed since."""
        claim = shown.claim
        preconditions = {"uid": claim.uid, "resourceVersion": shown.version}
        path = namespaced_path(RESOURCE_CLAIM, claim.namespace, claim.name)
        await self._api_client.request("DELETE", path, body=msgspec.json.encode({"preconditions": preconditions}))

    def _shown(self, path: str, raw: bytes) -> ShownClaim:
        try:
            wire = _claims.read(raw)
            # As the gates of the cluster let the watch show it.
            claim = self._shell.cluster.device_gates.as_claimed(to_resource_claim(wire))
        except (UnreadableJson, ModelError) as error:
            raise ConnectionLost(f"{path}: {error}") from error
        return ShownClaim(claim, wire.metadata.resource_version or "", raw)
