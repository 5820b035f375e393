"""Gives claims of planned pods their volumes, many at once, as kube-scheduler does before it binds a pod.

A PersistentVolume is kept for its claim (spec.claimRef), or a claim names the node that a volume is provisioned for.
The object is read first and changed as it was read (resourceVersion): nobody's volume is taken, and a write whose
answer was lost is found done. The PersistentVolume controller and the provisioner do the rest.

Source: component-helpers storage/volume GetBindVolumeToClaim; kube-scheduler plugins/volumebinding bindAPIUpdate.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import structlog

from flowcore.api.storage_objects import BOUND_BY_CONTROLLER, SELECTED_NODE
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import MERGE_PATCH, ApiClient, api_path
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.api.writes.queued_writer import QueuedWriter
from thalweg_operator.api.writes.write_queue import Finished, Outcome, Retry, WriteQueue, retry_after_error
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations.effects import BindClaim
from thalweg_operator.reservations.events import Answer
from thalweg_operator.shell import Shell

_log = structlog.get_logger()
_BACKOFF = Backoff(first=0.1, longest=5.0)
#: Tries that meet a change of the object between reading and writing.
_CONFLICTS: Final = 5


class _Meta(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class _ClaimRef(msgspec.Struct):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    claim_ref: _ClaimRef | None = None
    volume_name: str | None = None


class _Status(msgspec.Struct):
    phase: str = ""


class _Object(msgspec.Struct):
    metadata: _Meta
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


_objects = JsonReader(_Object)


class VolumeClaimWriter(QueuedWriter[BindClaim]):
    """Carries ``BindClaim`` out, for the claims of a namespace in the order they come."""

    def __init__(
        self, api_client: ApiClient, shell: Shell, metrics: Metrics, concurrency: int, *, backoff: Backoff = _BACKOFF
    ) -> None:
        """Keeps at most ``concurrency`` writes in flight; ``backoff``: pauses between tries of one write."""
        self._api_client, self._shell, self._metrics = api_client, shell, metrics
        super().__init__(WriteQueue("volumes", concurrency, self._try, metrics, backoff))

    def put(self, write: BindClaim) -> None:
        """Puts a write in line."""
        self._queue.put(write, write.pod.namespace)

    async def _try(self, write: BindClaim, tries: int) -> Outcome:
        try:
            return await self._carry_out(write, tries)
        except Exception as error:
            # The pod must not be lost: its room is given back and the next round takes it up.
            self._shell.answered(write, Answer.REFUSED, repr(error))
            raise

    async def _carry_out(self, write: BindClaim, tries: int) -> Outcome:
        if not self._shell.is_wanted(write):
            self._shell.answered(write, Answer.UNWANTED)
            return Finished.UNSENT
        path = _path(write)
        try:
            known = _objects.read(await self._api_client.request("GET", path))
            change = _change(write, known)
            if isinstance(change, str):
                return self._refused(write, "taken", change)
            if change is not None:
                body = msgspec.json.encode(change)
                await self._api_client.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        except UnreadableJson as error:
            return self._refused(write, "unreadable", str(error))
        except ConnectionLost as error:
            self._count("lost")
            _log.warning("claim unanswered, asking again", pod=write.pod.key, claim=write.choice.name)
            return retry_after_error(error)
        except Refused as error:
            if error.transient:
                self._count(str(error.status))
                return retry_after_error(error)
            if error.status == 409 and tries < _CONFLICTS:
                self._count("409")
                return Retry("conflict", counts_as_failure=False)
            return self._refused(write, str(error.status), error.reason or str(error.status))
        self._count("done")
        self._shell.answered(write, Answer.DONE)
        return Finished.ANSWERED

    def _refused(self, write: BindClaim, what: str, reason: str) -> Outcome:
        self._count(what)
        _log.info("claim not bound", pod=write.pod.key, claim=write.choice.name, node=write.node, reason=reason)
        self._shell.answered(write, Answer.REFUSED, reason)
        return Finished.ANSWERED

    def _count(self, answer: str) -> None:
        self._metrics.claim_writes.labels("bind", answer).inc()


def _path(write: BindClaim) -> str:
    choice = write.choice
    if choice.volume:
        return api_path("/api/v1/persistentvolumes", choice.volume)
    return api_path("/api/v1/namespaces", choice.namespace, "persistentvolumeclaims", choice.name)


def _change(write: BindClaim, known: _Object) -> dict[str, Any] | str | None:
    """What is to be changed of an object, why it must not be changed, or None: it is as it should be."""
    choice = write.choice
    return _change_of_volume(write, known) if choice.volume else _change_of_claim(write, known)


def _change_of_volume(write: BindClaim, known: _Object) -> dict[str, Any] | str | None:
    choice, kept_for, meta = write.choice, known.spec.claim_ref, known.metadata
    if kept_for is not None and kept_for.name:
        if (kept_for.namespace, kept_for.name) != choice.key or kept_for.uid not in ("", choice.uid):
            return f'persistentvolume "{choice.volume}" is kept for another claim'
        if kept_for.uid == choice.uid:
            return None
    elif known.status.phase != "Available":
        return f'persistentvolume "{choice.volume}" is not available'
    if meta.deletion_timestamp:
        return f'persistentvolume "{choice.volume}" is being deleted'
    metadata: dict[str, Any] = {"resourceVersion": meta.resource_version}
    if kept_for is None or not kept_for.name:
        # Whoever kept it for the claim himself keeps it when the claim is gone: then it is not said.
        metadata["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": choice.namespace,
        "name": choice.name,
        "uid": choice.uid,
    }
    return {"metadata": metadata, "spec": {"claimRef": claim}}


def _change_of_claim(write: BindClaim, known: _Object) -> dict[str, Any] | str | None:
    choice, meta = write.choice, known.metadata
    if meta.uid != choice.uid:
        return "another claim has its name now"
    selected = (meta.annotations or {}).get(SELECTED_NODE)
    if known.spec.volume_name or selected == write.node:
        return None  # the watch will show it
    if meta.deletion_timestamp:
        return "it is being deleted"
    if selected is not None:
        return f"a volume is provisioned for it on node {selected}"
    return {
        "metadata": {"resourceVersion": meta.resource_version, "annotations": {SELECTED_NODE: write.node}},
    }
