"""Leader election by a Lease (coordination.k8s.io/v1): one process writes, all others do not.

The resourceVersion is the lock: a PUT takes or renews the lease, and the API server refuses it where somebody else
wrote first. A holder counts its time from before it sent the renewal, by a clock that counts suspension too, and stops
writing ``renew`` seconds later (``Fence``). Others count from when they first saw that renewal, which is later, and
wait ``duration`` seconds. Wall clocks are written into the Lease for people and are never compared.

Not kubernetes_asyncio's leader election: its requests have no time-out, a lost connection leaves the leading task
running, it compares wall clocks, and it does not release the lease. See docs/decisions/0028.
"""

from __future__ import annotations

import asyncio
import socket
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import structlog

from thalweg_operator.connection import Connection
from thalweg_operator.errors import ConnectionLost, LeaseHeld, LeaseLost, OperatorError, Refused
from thalweg_operator.fence import Fence
from thalweg_operator.json_reading import NotReadable, Reader

_log = structlog.get_logger()
_GROUP: Final = "coordination.k8s.io/v1"
#: Seconds that the release may take when the process ends.
_RELEASE = 3.0


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct):
    """What is read of a Lease."""

    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


_known, _whole = Reader(_Lease), Reader(dict[str, Any])


@dataclass(frozen=True, slots=True)
class LeaseName:
    """Which Lease object."""

    namespace: str = "kube-system"
    name: str = "thalweg"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds, as in kube-scheduler's leader election.

    Attributes:
        duration: for which others wait after the last renewal that they saw.
        renew: after which a holder whose renewals fail stops writing.
        retry: between two tries to take or to renew.
    """

    duration: float = 15.0
    renew: float = 10.0
    retry: float = 2.0


class Elector:
    """Takes one lease, renews it, gives it back.

    Attributes:
        held: set while this process holds the lease and may write.
    """

    def __init__(
        self,
        connection: Connection,
        fence: Fence,
        lease: LeaseName,
        *,
        times: LeaseTimes = LeaseTimes(),
        waits: bool = False,
        seizes: bool = False,
    ) -> None:
        """An elector.

        Args:
            connection: of its own, without a fence.
            fence: opened while the lease is held.
            waits: whether to wait for as long as another process holds the lease, instead of giving up.
            seizes: whether to take the lease from a holder that is alive. It stops at its next renewal; until its
                time is over in any case, nothing is written.
        """
        self._connection, self._fence, self._lease = connection, fence, lease
        self._times, self._waits, self._seizes = times, waits, seizes
        self._clock = fence.clock
        self._path = f"/apis/{_GROUP}/namespaces/{lease.namespace}/leases"
        self.identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        self.held = asyncio.Event()
        #: Whether nobody else was seen to hold it since we did; it may be overdue.
        self._mine = False
        #: The Lease as we last wrote it.
        self._written: dict[str, Any] | None = None
        #: What another holder's Lease said when it last changed, and when we saw that.
        self._seen: dict[str, Any] | None = None
        self._seen_at = self._refused_at = 0.0
        self._deadline = float("inf")
        #: Before this time the holder from which the lease was seized may still write.
        self._not_before = float("-inf")

    @property
    def may_write(self) -> bool:
        """Whether the lease is held and its time is not over: a process that was stopped knows before it hears more."""
        return self.held.is_set() and self._fence.open

    async def run(self) -> None:
        """Takes the lease and renews it until cancelled.

        Raises:
            LeaseLost: another process took it.
            OperatorError: it cannot be taken: another process renews it, or a right is missing.
        """
        while True:
            await self.attempt()
            await asyncio.sleep(max(0.0, min(self._times.retry, self._deadline - self._clock())))

    async def attempt(self) -> None:
        """One try to take or to renew the lease; raises as ``run`` does."""
        problem = ""
        try:
            async with asyncio.timeout(self._times.renew / 2):
                await self._take()
        except TimeoutError:
            problem = "the API server did not answer in time"
            self._connection.outages.failed("lease", "time-out", problem)
        except LeaseLost:
            self._close()
            self._mine = False
            raise
        except ConnectionLost as error:
            problem = str(error)  # the connection logs it
        except NotReadable as error:
            problem = f"the answer is no Lease: {error}"
            self._connection.outages.failed("lease", "not understood", problem)
        except Refused as error:
            problem = str(error)
            self._connection.outages.failed("lease", str(error.status), problem, passing=True)
            self._check_rights(error)
        else:
            self._refused_at = 0.0
            self._connection.outages.over("lease")
        if self.held.is_set() and self._clock() >= self._deadline:
            # An API server that is away is no reason to forget all that is known. If nobody takes the lease meanwhile,
            # nobody else writes, and the next renewal that gets through opens the fence again.
            self._close()
            _log.error("lease not renewed in time, nothing is written", lease=str(self._lease), problem=problem)

    async def release(self) -> None:
        """Gives the lease back, so that another process need not wait; nothing if it is not held."""
        if not self._mine:
            return
        self._close()
        self._mine = False
        try:
            async with asyncio.timeout(_RELEASE):
                # The last renewal may have been cut off: read what it did.
                lease = await self._read()
                if lease is not None and _holder(lease) == self.identity:
                    await self._put(lease, {"holderIdentity": "", "leaseDurationSeconds": 1})
                    _log.info("lease released", lease=str(self._lease))
        except (OperatorError, NotReadable, TimeoutError) as error:
            _log.warning("lease not released", lease=str(self._lease), problem=str(error))

    async def _take(self) -> None:
        lease = self._written
        if lease is not None:
            try:
                await self._write(lease)
            except Refused as error:
                if error.status not in (404, 409):
                    raise
                self._written = None  # somebody else wrote, or our own earlier try got through: look
            else:
                return
        lease = await self._read()
        if self._mine and lease is None:
            raise LeaseLost(f"the lease {self._lease} was deleted; another process may have held it meanwhile")
        if lease is None or self._may_take(lease):
            await self._write(lease)

    async def _write(self, lease: dict[str, Any] | None) -> None:
        sent = self._clock()
        before = "" if lease is None else _holder(lease)
        spec: dict[str, Any] = {"holderIdentity": self.identity, "leaseDurationSeconds": round(self._times.duration)}
        if before != self.identity:
            earlier = 0 if lease is None else lease.get("spec", {}).get("leaseTransitions") or 0
            spec |= {"acquireTime": _now(), "leaseTransitions": earlier + 1}
        if lease is None:
            metadata = {"name": self._lease.name, "namespace": self._lease.namespace}
            body = {"apiVersion": _GROUP, "kind": "Lease", "metadata": metadata, "spec": spec | {"renewTime": _now()}}
            raw = await self._connection.request("POST", self._path, body=msgspec.json.encode(body))
            self._written = _decode(raw)
        else:
            self._written = await self._put(lease, spec)
        if self._clock() < self._not_before:
            return
        self._deadline = sent + self._times.renew
        self._fence.extend(self._deadline, sent + self._times.duration)
        if not self.held.is_set():
            self._mine = True
            self.held.set()
            _log.info("lease held", lease=str(self._lease), holder=self.identity)

    def _may_take(self, lease: dict[str, Any]) -> bool:
        """Whether nobody else holds it any more; raises where waiting for that is in vain."""
        holder, spec = _holder(lease), lease.get("spec", {})
        if holder == self.identity:
            return True
        if self._mine:
            raise LeaseLost(f"{holder or 'another process'} took the lease {self._lease}")
        if not holder:
            return True
        duration = spec.get("leaseDurationSeconds") or self._times.duration
        if self._seizes:
            self._not_before = self._clock() + duration
            _log.warning("lease seized", lease=str(self._lease), holder=holder)
            return True
        if spec != self._seen:
            if self._seen is not None and not self._waits:
                raise LeaseHeld(
                    f"another Thalweg works on this cluster: {holder} holds the lease {self._lease} and renews it"
                )
            if self._seen is None:
                _log.info("waiting for the lease to end", lease=str(self._lease), holder=holder)
            self._seen, self._seen_at = spec, self._clock()
        return bool(self._clock() - self._seen_at >= duration)

    def _check_rights(self, error: Refused) -> None:
        """A cluster that was just started refuses what it allows a moment later; after that it means what it says."""
        if self._mine or error.status not in (403, 404):
            self._refused_at = 0.0
            return
        now = self._clock()
        self._refused_at = self._refused_at or now
        if now - self._refused_at >= self._times.renew:
            raise OperatorError(
                f"cannot use the lease {self._lease}: {error}; it needs get, create and update on "
                f"leases.coordination.k8s.io in the namespace {self._lease.namespace}"
            )

    async def _read(self) -> dict[str, Any] | None:
        try:
            raw = await self._connection.request("GET", f"{self._path}/{self._lease.name}")
        except Refused as error:
            if error.status == 404:
                return None
            raise
        return _decode(raw)

    async def _put(self, lease: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
        body = {**lease, "spec": {**lease.get("spec", {}), **spec, "renewTime": _now()}}
        path = f"{self._path}/{self._lease.name}"
        return _decode(await self._connection.request("PUT", path, body=msgspec.json.encode(body)))

    def _close(self) -> None:
        self._fence.close()
        self.held.clear()
        self._deadline = float("inf")


def _holder(lease: dict[str, Any]) -> str:
    return str(lease.get("spec", {}).get("holderIdentity") or "")


def _decode(raw: bytes) -> dict[str, Any]:
    """The whole Lease, fields of others too; it is written back as it was read."""
    _known.read(raw)
    return _whole.read(raw)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
