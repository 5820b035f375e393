"""Makes the claim for a pod's extended resources where devices are to serve them, and deletes it.

Source: kube-scheduler plugins/dynamicresources/extendeddynamicresources.go (preFilterExtendedResources,
createExtendedResourceClaimInAPI, patchPodExtendedResourceClaimStatus, deleteClaim). The name follows from the pod, so
a write whose answer was lost, or that another leader began, meets the claim that it made: it is taken up as long as it
asks for what the pod needs on its node. The pod's status names the claim only while the claim is there: it is written
last and taken back first.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from flowcore.model.pods import Pod
from flowcore.model.resource_claims import ClaimRequest, PlannedClaim
from thalweg_operator.api.client import MERGE_PATCH, ApiClient, pod_path
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.delivery.claims.claim_api import PARAMS, ClaimApi, ClaimNotToBeHad
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.reservations.effects import ReleasedClaim

#: resource/v1 ExtendedResourceClaimAnnotation.
ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"


class _ToldStatus(msgspec.Struct, rename="camel"):
    extended_resource_claim_status: dict[str, Any] | None = None


class _ToldPod(msgspec.Struct):
    status: _ToldStatus


_pods = JsonReader(_ToldPod)


class ExtendedClaims:
    """Claims for extended resources, and what pods' status says of them.

    All methods raise ``ConnectionLost`` and ``Refused`` as the client does.
    """

    def __init__(self, api_client: ApiClient, claims: ClaimApi) -> None:
        self._api_client, self._claims = api_client, claims

    async def make(self, pod: Pod, planned: PlannedClaim) -> PlannedClaim:
        """The claim once it is there.

        Raises:
            ClaimNotToBeHad: there is another one of its name, or it asks for something else.
        """
        try:
            shown = await self._claims.create(planned.namespace, claim_object(pod, planned))
        except Refused as error:
            if error.status != 409:
                raise
            shown = await self._claims.patch(ReleasedClaim(planned.namespace, planned.name, ""), {})
        claim = shown.claim
        if not (claim.is_extended and claim.is_ours and claim.controller == pod.uid):
            raise ClaimNotToBeHad("another one has its name")
        if claim.is_being_deleted:
            raise ClaimNotToBeHad("it is being deleted")
        if claim.requests != tuple(map(_without_resource, planned.requests)):
            raise ClaimNotToBeHad("it was made for another node")
        return msgspec.structs.replace(planned, uid=claim.uid)

    async def tell(self, pod: Pod, planned: PlannedClaim) -> None:
        """The pod's status names the claim.

        Raises:
            ClaimNotToBeHad: the pod is gone, or the API server does not keep that field.
        """
        raw = await self._patch_status(pod, claim_status(pod, planned))
        if raw is None:
            raise ClaimNotToBeHad("its pod is gone")
        try:
            named = _pods.read(raw).status.extended_resource_claim_status
        except UnreadableJson as error:
            raise ConnectionLost(f"{pod.key}: {error}") from error
        if named is None:
            raise ClaimNotToBeHad("the API server does not keep status.extendedResourceClaimStatus of pods")

    async def untell(self, pod: Pod) -> None:
        """The pod's status names no claim any more."""
        await self._patch_status(pod, None)

    async def _patch_status(self, pod: Pod, status: dict[str, Any] | None) -> bytes | None:
        """The pod after that; None: it is gone."""
        body = {"metadata": {"uid": pod.uid}, "status": {"extendedResourceClaimStatus": status}}
        path = pod_path(pod.namespace, pod.name, "status")
        try:
            return await self._api_client.request(
                "PATCH", path, body=msgspec.json.encode(body), content_type=MERGE_PATCH, params=PARAMS
            )
        except Refused as error:
            if error.status not in (404, 409):
                raise
            return None


def claim_object(pod: Pod, planned: PlannedClaim) -> dict[str, Any]:
    """The claim as it is created."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": planned.name,
            "namespace": planned.namespace,
            "annotations": {ANNOTATION: "true"},
            "ownerReferences": [owner],
        },
        "spec": {"devices": {"requests": [_request(request) for request in planned.requests]}},
    }


def claim_status(pod: Pod, planned: PlannedClaim) -> dict[str, Any]:
    """``status.extendedResourceClaimStatus`` of a pod whose claim is there."""
    resources = {request.resource for request in planned.requests}
    mappings = [
        {"containerName": container, "resourceName": extended.resource, "requestName": request}
        for extended in pod.extended
        if extended.resource in resources
        for container, request in extended.mappings
    ]
    return {"resourceClaimName": planned.name, "requestMappings": mappings}


def _request(request: ClaimRequest) -> dict[str, Any]:
    (devices,) = request.alternatives
    exactly = {"deviceClassName": devices.device_class, "allocationMode": devices.mode, "count": devices.count}
    return {"name": request.name, "exactly": exactly}


def _without_resource(request: ClaimRequest) -> ClaimRequest:
    """A request as the claim has it: the resource in whose place it is stands in the pod."""
    return msgspec.structs.replace(request, resource="")
