"""Writes what pods have of devices: allocations, reservations, and that they are given back.

Source: kube-scheduler plugins/dynamicresources (bindClaim, Unreserve, PostFilter). A claim gets the finalizer, then its
allocation together with who reserves it, the pod or its PodGroup, in one write by the claim's resource version; a claim
that has its allocation gets one more consumer. Each answer shows the claim as it is, so that nothing is read beside,
and a write whose answer was lost is simply tried again. Writes for one pod go one after the other, its claims in its
order. A claim for extended resources is made before that, and named in the pod's status after it
(``extended_claims``).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from flowcore.api.claim_allocations import WireDeviceConfig, allocation_object, read_config
from flowcore.api.kinds import POD_GROUPS
from flowcore.model.gang_spec import GangSource
from flowcore.model.pods import Pod
from flowcore.model.resource_claims import ClaimAllocation, PlannedClaim
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import MERGE_PATCH, ApiClient
from thalweg_operator.api.json_reading import JsonReader
from thalweg_operator.api.writes.events import timestamp
from thalweg_operator.api.writes.queued_writer import QueuedWriter
from thalweg_operator.api.writes.write_queue import Finished, Outcome, Retry, WriteQueue, retry_after_error
from thalweg_operator.delivery.claims.claim_api import ClaimApi, ClaimNotToBeHad, ShownClaim
from thalweg_operator.delivery.claims.extended_claims import ExtendedClaims
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations.effects import Allocate, ReleaseClaims, ReleasedClaim
from thalweg_operator.reservations.events import Answer
from thalweg_operator.shell import Shell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_log = structlog.get_logger()
_BACKOFF = Backoff(first=0.1, longest=5.0)
#: Something refuses that claims are given back: rarely more than an administrator ends that.
_REFUSED = Backoff(first=1.0, longest=300.0)
#: How often a claim is written at once that others change meanwhile.
_TRIES = 5
#: Keeps a claim that is being deleted until it is deallocated (resource/v1 Finalizer).
_FINALIZER: Final = "resource.kubernetes.io/delete-protection"


class _ClaimDevices(msgspec.Struct):
    config: list[WireDeviceConfig] | None = None


class _ClaimSpec(msgspec.Struct):
    devices: _ClaimDevices = msgspec.field(default_factory=_ClaimDevices)


class _ClaimWithConfig(msgspec.Struct):
    spec: _ClaimSpec = msgspec.field(default_factory=_ClaimSpec)


_configs = JsonReader(_ClaimWithConfig)


def _class_config(name: str, texts: Iterable[str]) -> list[WireDeviceConfig]:
    read = list(map(read_config, texts))
    if None in read:
        raise ClaimNotToBeHad(f"the config of the DeviceClass {name} is nested too deep to be copied")
    return [config for config in read if config is not None]


def _consumer(pod: Pod, planned: PlannedClaim) -> dict[str, str]:
    """Who reserves a claim (resource/v1 ResourceClaimConsumerReference)."""
    if planned.group is None:
        return {"resource": "pods", "name": pod.name, "uid": pod.uid}
    kind = POD_GROUPS[GangSource.NATIVE]
    return {"apiGroup": kind.group, "resource": kind.plural, "name": planned.group.name, "uid": planned.group.uid}


def _whose(write: Allocate | ReleaseClaims) -> str:
    """The uid of whose writes this one goes in line with."""
    if isinstance(write, Allocate):
        return write.pod.uid
    return write.consumer if write.pod is None else write.pod.uid


class DeviceClaimWriter(QueuedWriter[Allocate | ReleaseClaims]):
    """Carries out what is decided about device claims, many at once."""

    def __init__(
        self,
        api_client: ApiClient,
        shell: Shell,
        metrics: Metrics,
        concurrency: int,
        *,
        backoff: Backoff = _BACKOFF,
        refused: Backoff = _REFUSED,
    ) -> None:
        """Keeps at most ``concurrency`` pods' writes in flight.

        Args:
            backoff: pauses between tries of one write.
            refused: the same where the API server refuses that claims are given back.
        """
        self._shell, self._metrics, self._refused_backoff = shell, metrics, refused
        self._claims = ClaimApi(api_client, shell)
        self._extended = ExtendedClaims(api_client, self._claims)
        super().__init__(WriteQueue("devices", concurrency, self._try, metrics, backoff))
        #: By the uid of a pod or a PodGroup: its lock, and how many hold or want it.
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    def put(self, write: Allocate | ReleaseClaims) -> None:
        """Puts a write in line."""
        self._queue.put(write, write.claims[0].namespace)

    async def _try(self, write: Allocate | ReleaseClaims, tries: int) -> Outcome:
        async with self._alone(_whose(write)):
            try:
                return await (self._allocate(write) if isinstance(write, Allocate) else self._release(write, tries))
            except Exception as error:
                self._answer(write, Answer.REFUSED, repr(error))
                raise

    @asynccontextmanager
    async def _alone(self, uid: str) -> AsyncIterator[None]:
        lock, users = self._locks.get(uid, (asyncio.Lock(), 0))
        self._locks[uid] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            users = self._locks[uid][1] - 1
            if users:
                self._locks[uid] = lock, users
            else:
                del self._locks[uid]

    def _answer(self, write: Allocate | ReleaseClaims, answer: Answer, reason: str = "") -> None:
        kind = "allocate" if isinstance(write, Allocate) else "release"
        self._metrics.claim_writes.labels(kind, answer.value).inc()
        self._shell.answered(write, answer, reason)

    # --- allocations ---

    async def _allocate(self, write: Allocate) -> Outcome:
        for planned in write.claims:
            try:
                outcome = await (self._make if planned.requests else self._reserve)(write, planned)
            except ClaimNotToBeHad as problem:
                _log.info("claim not reserved", pod=write.pod.key, claim="/".join(planned.key), problem=str(problem))
                self._answer(write, Answer.REFUSED, f"ResourceClaim {'/'.join(planned.key)}: {problem}")
                return Finished.ANSWERED
            except ConnectionLost as error:
                return retry_after_error(error)
            except Refused as error:
                if error.transient:
                    return retry_after_error(error)
                problem_text = "it is gone" if error.status == 404 else error.reason or str(error.status)
                self._answer(write, Answer.REFUSED, f"ResourceClaim {'/'.join(planned.key)}: {problem_text}")
                return Finished.ANSWERED
            if outcome is not None:
                return outcome
        self._answer(write, Answer.DONE)
        return Finished.ANSWERED

    async def _make(self, write: Allocate, planned: PlannedClaim) -> Outcome | None:
        """Makes a claim for extended resources, and writes it and the pod's status. None: that is done.

        Raises:
            ClaimNotToBeHad: as ``_reserve``, or the pod's status cannot name it.
            ConnectionLost, Refused: as of the client.
        """
        if not self._shell.is_wanted(write):
            self._answer(write, Answer.UNWANTED)
            return Finished.UNSENT
        outcome = await self._reserve(write, await self._extended.make(write.pod, planned))
        if outcome is None:
            await self._extended.tell(write.pod, planned)
        return outcome

    async def _reserve(self, write: Allocate, planned: PlannedClaim) -> Outcome | None:
        """Writes one claim. None: it is allocated and reserved as planned.

        Raises:
            ClaimNotToBeHad: it is another claim now, or has another allocation.
            ConnectionLost, Refused: as of the client.
        """
        pod = write.pod
        ref = ReleasedClaim(planned.namespace, planned.name, planned.uid)
        consumer = _consumer(pod, planned)
        for _ in range(_TRIES):
            if not self._shell.is_wanted(write):
                self._answer(write, Answer.UNWANTED)
                return Finished.UNSENT
            # Where it has the finalizer already, nothing changes, and the answer shows the claim.
            shown = await self._claims.patch(ref, {"metadata": {"uid": ref.uid, "finalizers": [_FINALIZER]}})
            claim, metadata = shown.claim, {"uid": ref.uid, "resourceVersion": shown.version}
            if claim.is_being_deleted:
                raise ClaimNotToBeHad("it is being deleted")
            if claim.allocation is not None and not claim.allocation.is_like(planned.allocation):
                raise ClaimNotToBeHad("it was allocated otherwise in the meantime")
            if consumer["uid"] in claim.reserved_for and claim.allocation is not None:
                return None
            status: dict[str, Any] = {"reservedFor": [consumer]}
            if claim.allocation is None:
                status["allocation"] = self._allocation(shown, planned.allocation)
            try:
                await self._claims.patch(ref, {"metadata": metadata, "status": status}, "status")
            except Refused as error:
                if error.status != 409:
                    raise
                continue  # somebody changed it meanwhile
            return None
        return Retry("conflict", counts_as_failure=False)

    def _allocation(self, shown: ShownClaim, allocation: ClaimAllocation) -> Mapping[str, Any]:
        classes = self._shell.cluster.devices.classes
        own = _configs.read(shown.raw).spec.devices.config or []
        if not all(config.is_copyable for config in own):
            raise ClaimNotToBeHad("its config is nested too deep to be copied")
        of_classes = {
            name: _class_config(name, classes[name].config) if name in classes else []
            for request in shown.claim.requests
            for name in (alternative.device_class for alternative in request.alternatives)
        }
        made = allocation_object(shown.claim, allocation, own, of_classes, lambda: str(uuid.uuid4()))
        return {**made, "allocationTimestamp": timestamp()}

    # --- giving back ---

    async def _release(self, write: ReleaseClaims, tries: int) -> Outcome:
        for ref in write.claims:
            if not self._shell.is_wanted(write):
                self._answer(write, Answer.UNWANTED)
                return Finished.UNSENT
            try:
                if ref.is_extended and write.pod is not None and self._is_there(write.pod):
                    await self._extended.untell(write.pod)
                outcome = await self._free(ref, write)
            except ConnectionLost as error:
                return retry_after_error(error)
            except Refused as error:
                if error.transient:
                    return retry_after_error(error)
                if error.status not in (404, 409) and not self._is_gone(ref):
                    _log.warning("claim not given back", claim=f"{ref.namespace}/{ref.name}", problem=str(error))
                    self._answer(write, Answer.RETRYING, error.reason)
                    return Retry("refused", self._refused_backoff.pause(tries + 1), counts_as_failure=False)
                continue
            if outcome is not None:
                return outcome
        self._answer(write, Answer.DONE)
        return Finished.ANSWERED

    def _is_there(self, pod: Pod) -> bool:
        """Whether the watch shows a pod, and not another one of its name."""
        shown = self._shell.cluster.pods.get(pod.key)
        return shown is not None and shown.uid == pod.uid

    def _is_gone(self, ref: ReleasedClaim) -> bool:
        """Whether the watch shows that a claim is gone, or that another one has its name.

        The API server refuses a patch that names another uid as it refuses what is invalid (422).
        """
        shown = self._shell.cluster.devices.claims.get((ref.namespace, ref.name))
        return shown is None or (bool(ref.uid) and shown.uid != ref.uid)

    async def _free(self, ref: ReleasedClaim, write: ReleaseClaims) -> Outcome | None:
        """Gives one claim back. None: that is done.

        Raises:
            ConnectionLost, Refused: as of the client.
        """
        # The server removes the consumer from the list as it is then.
        consumer = write.consumer
        gone = {"status": {"reservedFor": [{"$patch": "delete", "uid": consumer}]}} if consumer else {}
        known = {"metadata": {"uid": ref.uid}} if ref.uid else {}
        for _ in range(_TRIES):
            shown = await self._claims.patch(ref, known | gone, "status")
            claim = shown.claim
            is_meant = bool(ref.uid) or (bool(consumer) and claim.controller == consumer)
            if claim.reserved_for or not (claim.is_ours or ref.is_in_the_way) or not is_meant:
                return None
            metadata = {"uid": claim.uid, "resourceVersion": shown.version}
            freed = {"metadata": metadata, "status": {"allocation": None}}
            try:
                if claim.allocation is not None:
                    shown = await self._claims.patch(ref, freed, "status", MERGE_PATCH)
                if ref.is_extended and not claim.is_being_deleted:
                    await self._claims.delete(shown)
            except Refused as error:
                if error.status != 409:
                    raise
                continue  # somebody reserves it, perhaps
            return None
        return Retry("conflict", counts_as_failure=False)
