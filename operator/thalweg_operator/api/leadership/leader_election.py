"""Leader election by a Lease (coordination.k8s.io/v1): only the holder writes.

The resourceVersion is the lock: a PUT acquires or renews the lease, and the API server refuses it if another process
wrote first. The holder measures from before it sent the renewal, by a clock that includes suspended time, and stops
writing after ``renew`` seconds (``Fence``). The others measure from when they first saw the renewal, which is later,
and wait until all its writes have ended (``LeaseTimes``). The Lease shows wall-clock times to people; nothing compares
them.

Only a release says that nobody writes any more. A Lease that lacks a holder for another reason was perhaps replaced
while its holder works: it is waited for like one whose holder died. A Lease that was deleted is made again, empty.

kubernetes_asyncio's leader election does not fit: its requests have no timeout, a lost connection leaves the leading
task running, it compares wall clocks, and it does not release the lease. See docs/decisions/0028.
"""

from __future__ import annotations

import asyncio
import socket
import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import structlog

from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import APPLY_PATCH, ApiClient
from thalweg_operator.api.fence import Fence
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.constants import COMPONENT
from thalweg_operator.errors import ConnectionLost, LeaseHeld, LeaseLost, OperatorError, Refused

_log = structlog.get_logger()
_API_GROUP: Final = "coordination.k8s.io/v1"
#: Seconds that the release may take at shutdown.
_RELEASE = 3.0
#: What a release writes, as client-go does. Nothing else writes such a duration.
_RELEASED: Final = {"holderIdentity": "", "leaseDurationSeconds": 1}


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct):
    """The fields of a Lease that are checked."""

    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


_lease_reader, _object_reader = JsonReader(_Lease), JsonReader(dict[str, Any])


@dataclass(frozen=True, slots=True)
class LeaseName:
    """Namespace and name of a Lease."""

    namespace: str = "kube-system"
    name: str = "thalweg"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Durations in seconds; the first three as in kube-scheduler's leader election.

    From the moment before a renewal is sent, with the values below:

    - 2: the next renewal is sent at the latest. It may take 5 (``attempt``); one that is not answered leaves time for
      another one, which is sent at 9.
    - 10: no write is started any more, and no byte is sent (``Fence``, ``FencedSocket``).
    - 13: the kernel has delivered what was sent, or dropped it (``client.DELIVERED_WITHIN``).
    - 14: others may take the lease. One second is left for inaccurate timers.
    - 15: what the Lease says. One second is left for the first binding of the next leader.

    Attributes:
        duration: leaseDurationSeconds.
        renew: a holder starts no write so long after its last successful renewal.
        retry: longest pause between two attempts to acquire or renew.
        reserve: others may take the lease so long before it ends.
    """

    duration: float = 15.0
    renew: float = 10.0
    retry: float = 2.0
    reserve: float = 1.0

    @property
    def attempt(self) -> float:
        """Seconds that one attempt to acquire or renew may take."""
        return self.renew / 2

    def writes_end(self, duration: float = 0.0) -> float:
        """Seconds after a renewal at which all writes of the holder have ended.

        Args:
            duration: that its Lease says. Less than ours does not count: each version of Thalweg writes for that long.
        """
        return max(duration, self.duration) - self.reserve


class LeaderElector:
    """Acquires a lease, renews it and releases it.

    Attributes:
        api_client, lease: as given.
        held: set while this process holds the lease and may write.
        held_since: the event loop's time at which it was acquired last; infinite before.
        tried: set after the first attempt.
        holder: identity of the last holder seen; "": the lease is free.
    """

    def __init__(
        self,
        api_client: ApiClient,
        fence: Fence,
        lease: LeaseName,
        *,
        times: LeaseTimes = LeaseTimes(),
        waits: bool = False,
        seizes: bool = False,
    ) -> None:
        """An elector.

        Args:
            api_client: a client without a fence.
            fence: open while the lease is held.
            lease: the Lease to hold.
            times: durations of the election.
            waits: whether to wait as a standby while another process renews the lease, instead of raising LeaseHeld.
            seizes: whether to take the lease from a live holder. The old holder stops at its next renewal. This process
                writes nothing until the old holder's time is over.
        """
        self.api_client, self._fence, self.lease = api_client, fence, lease
        self._times, self._waits, self._seizes = times, waits, seizes
        self._retry = Backoff(first=times.retry, longest=times.retry, jitter=0.2)
        self._clock = fence.clock
        self._path = f"/apis/{_API_GROUP}/namespaces/{lease.namespace}/leases"
        self.identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        self.held, self.tried = asyncio.Event(), asyncio.Event()
        self.held_since = float("inf")
        self.holder = ""
        self._changed = asyncio.Event()
        #: Whether this process was the last holder seen; its time may be over.
        self._mine = False
        #: Whether a write that makes this process the holder was sent. It may have been carried out without an answer.
        self._asked = False
        #: The Lease as this process wrote it last.
        self._written: dict[str, Any] | None = None
        #: The Lease at the last change by others.
        self._seen: dict[str, Any] | None = None
        self._refused_at = 0.0
        #: When the writes of the holder seen have ended, unless it renews the lease.
        self._free_at = float("-inf")
        self._deadline = float("inf")
        #: Until this time the previous holder of a seized lease may still write.
        self._not_before = float("-inf")

    @property
    def may_write(self) -> bool:
        """Whether the lease is held and its time is not over; known without an answer of the API server."""
        return self.held.is_set() and self._fence.open

    async def run(self) -> None:
        """Acquires the lease and renews it until cancelled.

        Raises:
            LeaseLost: another process took the lease.
            OperatorError: the lease cannot be acquired: another process renews it, or RBAC forbids it.
        """
        while True:
            self._changed.clear()
            await self.attempt()
            self.tried.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._changed.wait()

    def trigger(self) -> None:
        """Another process changed the lease: the next attempt follows at once, unless this process holds it."""
        if not self._mine:
            self._changed.set()

    def _pause(self) -> float:
        """Seconds until the next attempt. They are random, so that replicas do not ask at the same time."""
        now = self._clock()
        end = self._deadline if self._mine else self._free_at
        return max(0.0, min(self._retry.pause(1), end - now if end > now else float("inf")))

    async def attempt(self) -> None:
        """One attempt to acquire or renew the lease; raises as ``run`` does."""
        problem = ""
        try:
            async with asyncio.timeout(self._times.attempt):
                await self._take()
        except TimeoutError:
            problem = "the API server did not answer in time"
            self.api_client.outages.failed("lease", "time-out", problem)
        except LeaseLost:
            self._close()
            self._mine = False
            raise
        except ConnectionLost as error:
            problem = str(error)  # the client logs it
        except UnreadableJson as error:
            problem = f"the answer is no Lease: {error}"
            self.api_client.outages.failed("lease", "not understood", problem)
        except Refused as error:
            problem = str(error)
            self.api_client.outages.failed("lease", str(error.status), problem, transient=True)
            self._check_rights(error)
        else:
            self._refused_at = 0.0
            self.api_client.outages.recovered("lease")
        if self.held.is_set() and self._clock() >= self._deadline:
            # The process keeps its state while the API server is away. If no other process takes the lease, the next
            # successful renewal opens the fence again.
            self._close()
            _log.error("lease renewal failed, writes paused", lease=str(self.lease), problem=problem)

    async def release(self) -> None:
        """Releases the lease if it is held, so that another process need not wait."""
        if not self._asked or self._clock() < self._not_before:  # who held it before may still write
            return
        self._close()
        self._mine = self._asked = False
        try:
            async with asyncio.timeout(_RELEASE):
                # The last write may have been interrupted: read its result.
                lease = await self._read()
                if lease is not None and _holder(lease) == self.identity:
                    await self._put(lease, _RELEASED)
                    _log.info("lease released", lease=str(self.lease))
        except (OperatorError, UnreadableJson, TimeoutError) as error:
            _log.warning("lease not released", lease=str(self.lease), problem=str(error))

    async def _take(self) -> None:
        lease = self._written
        if lease is not None:
            try:
                await self._write(lease)
            except Refused as error:
                if error.status not in (404, 409):
                    raise
                self._written = None  # another process wrote, or an earlier attempt of ours succeeded: read it
            else:
                return
        lease = await self._read()
        absent = lease is None
        if lease is None:
            if self._mine:
                raise LeaseLost(f"the lease {self.lease} was deleted; another process may have held it meanwhile")
            lease = await self._make()
        if self._may_take(lease, new=absent):
            await self._write(lease)

    async def _write(self, lease: dict[str, Any]) -> None:
        sent = self._clock()
        spec: dict[str, Any] = {"holderIdentity": self.identity, "leaseDurationSeconds": round(self._times.duration)}
        if _holder(lease) != self.identity:
            earlier = lease.get("spec", {}).get("leaseTransitions") or 0
            spec |= {"acquireTime": _now(), "leaseTransitions": earlier + 1}
        self._asked = True
        self._written = await self._put(lease, spec)
        if self._clock() < self._not_before:
            return
        self._deadline = sent + self._times.renew
        self._fence.extend(self._deadline, sent + self._times.writes_end())
        if not self.held.is_set():
            self._mine, self.holder = True, self.identity
            self.held_since = asyncio.get_running_loop().time()
            self.held.set()
            _log.info("lease acquired", lease=str(self.lease), holder=self.identity)

    def _may_take(self, lease: dict[str, Any], *, new: bool) -> bool:
        """Whether no other process holds the lease any more.

        Args:
            new: whether the Lease was not there. A user may have deleted it while its holder works: replicas wait for
                that one. A process alone, the first one of a cluster as a rule, does not.

        Raises:
            LeaseLost: another process took the lease from this one.
            LeaseHeld: another process renews the lease, and this one does not wait.
        """
        holder, spec = _holder(lease), lease.get("spec", {})
        self.holder = holder
        if holder == self.identity:
            return True
        if self._mine:
            raise LeaseLost(f"{holder or 'another process'} took the lease {self.lease}")
        if _is_released(lease) or (new and not (holder or self._waits or self._seen)):
            return True
        seconds = self._times.writes_end(spec.get("leaseDurationSeconds") or 0.0)
        if self._seizes:
            self._not_before = self._clock() + seconds
            _log.warning("lease seized", lease=str(self.lease), holder=holder)
            return True
        # The version, not the spec, is compared: others may have held the lease between two that look the same.
        if self._seen is None or lease["metadata"]["resourceVersion"] != self._seen["metadata"]["resourceVersion"]:
            if self._seen is not None and holder and spec != self._seen.get("spec") and not self._waits:
                raise LeaseHeld(
                    f"another Thalweg works on this cluster: {holder} holds the lease {self.lease} and renews it"
                )
            if self._seen is None:
                _log.info("waiting for the lease", lease=str(self.lease), holder=holder)
            self._seen, self._free_at = lease, self._clock() + seconds
        return self._clock() >= self._free_at

    def _check_rights(self, error: Refused) -> None:
        """Raises OperatorError once 403 or 404 lasts ``renew`` seconds after the start of the API server."""
        if self._mine or error.starting or error.status not in (403, 404):
            self._refused_at = 0.0
            return
        now = self._clock()
        self._refused_at = self._refused_at or now
        if now - self._refused_at >= self._times.renew:
            raise OperatorError(
                f"cannot use the lease {self.lease}: {error}; it needs get, create, patch and update on "
                f"leases.coordination.k8s.io in the namespace {self.lease.namespace}"
            )

    async def _read(self) -> dict[str, Any] | None:
        try:
            raw = await self.api_client.request("GET", f"{self._path}/{self.lease.name}")
        except Refused as error:
            if error.status == 404:
                return None
            raise
        return _decode(raw)

    async def _make(self) -> dict[str, Any]:
        """Makes the Lease, without a holder; if another replica made it meanwhile, returns it unchanged.

        Server-side apply does both, and RBAC can limit `create` to a name with it.
        """
        lease = {
            "apiVersion": _API_GROUP,
            "kind": "Lease",
            # By this label `thalweg uninstall` finds the leases of all operators.
            "metadata": {
                "name": self.lease.name,
                "namespace": self.lease.namespace,
                "labels": {"app.kubernetes.io/name": COMPONENT},
            },
            "spec": {},
        }
        path, manager = f"{self._path}/{self.lease.name}", {"fieldManager": COMPONENT}
        body = msgspec.json.encode(lease)
        return _decode(
            await self.api_client.request("PATCH", path, body=body, content_type=APPLY_PATCH, params=manager)
        )

    async def _put(self, lease: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
        body = {**lease, "spec": {**lease.get("spec", {}), **spec, "renewTime": _now()}}
        path = f"{self._path}/{self.lease.name}"
        return _decode(await self.api_client.request("PUT", path, body=msgspec.json.encode(body)))

    def _close(self) -> None:
        self._fence.close()
        self.held.clear()
        self._deadline = float("inf")


def _holder(lease: dict[str, Any]) -> str:
    return str(lease.get("spec", {}).get("holderIdentity") or "")


def _is_released(lease: dict[str, Any]) -> bool:
    return bool(lease.get("spec", {}).items() >= _RELEASED.items())


def _decode(raw: bytes) -> dict[str, Any]:
    """The whole Lease, including unknown fields; they are written back unchanged."""
    _lease_reader.read(raw)
    return _object_reader.read(raw)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
