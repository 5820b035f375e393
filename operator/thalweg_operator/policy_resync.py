"""Lists all FlowSchedulingPolicy objects now and then: kopf's watch reports no deletions that it missed."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import structlog

from thalweg_operator.bad_input import BadInput
from thalweg_operator.connection import Connection
from thalweg_operator.errors import OperatorError, Refused
from thalweg_operator.json_reading import NotReadable, Reader
from thalweg_operator.names import POLICIES_PATH
from thalweg_operator.policies import PolicyStore

_log = structlog.get_logger()
#: Seconds between two lists of all policies.
_RESYNC = 10.0


class _Meta(msgspec.Struct):
    name: str
    uid: str
    generation: int = 0


class _Named(msgspec.Struct):
    metadata: _Meta


class _Specified(msgspec.Struct):
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


class _List(msgspec.Struct):
    items: list[msgspec.Raw]


_lists, _names, _specs = Reader(_List), Reader(_Named), Reader(_Specified)


class PolicyResync:
    """Keeps the store equal to what the API server has.

    Attributes:
        heard: the event loop's time of the last good list; None before.
    """

    def __init__(self, connection: Connection, store: PolicyStore, bad_input: BadInput) -> None:
        self._connection, self._store, self._bad_input = connection, store, bad_input
        self._installed: bool | None = None
        self.heard: float | None = None

    async def run(self) -> None:
        """Lists every ten seconds until cancelled.

        kopf looks at the API server's discovery once when a CRD changes, and never again; where discovery was not
        updated yet at that moment, kopf does not serve the policies, and this alone sees them.
        """
        while True:
            await self.once()
            await asyncio.sleep(_RESYNC)

    async def once(self) -> bool:
        """One list; whether it succeeded. A failure is logged."""
        try:
            present = await self.resync()
        except Refused as error:
            self._failed(str(error.status), error.reason, passing=error.status == 429)
            return False
        except NotReadable as error:
            self._failed("not understood", f"not a list of policies: {error}")
            return False
        except OperatorError:
            return False  # the connection logs it
        self.heard = asyncio.get_running_loop().time()
        self._connection.outages.over("policies")
        if present != self._installed:
            if present:
                _log.info("FlowSchedulingPolicy is served", policies=len(self._store.standings))
            else:
                _log.warning(
                    "FlowSchedulingPolicy is not installed; the built-in default policy is in force until it is",
                    hint="kubectl apply -f crds/",
                )
            self._installed = present
        return True

    def _failed(self, cause: str, problem: str, *, passing: bool = False) -> None:
        self._connection.outages.failed("policies", cause, problem, passing=passing)

    async def resync(self) -> bool:
        """Makes the store equal to what the API server has; False where the CRD is not installed.

        Raises:
            OperatorError: the API server could not be asked.
            NotReadable: the answer is no list of policies; the store stays as it was.
        """
        before = self._store.standings  # what comes while the list is on its way is newer than the list
        try:
            raw = await self._connection.request("GET", POLICIES_PATH)
        except Refused as error:
            if error.status != 404:
                raise
            for standing in before:
                self._store.forget(standing.name, standing.uid)
            return False
        found = [(_names.read(item).metadata, item) for item in _lists.read(raw).items]
        for meta, item in found:
            try:
                spec = _specs.read(item).spec
            except NotReadable as error:
                self._bad_input.refuse("policy", "spec", meta.name, str(error))
                continue  # the version before stays in force
            self._store.offer(meta.name, meta.uid, meta.generation, spec)
        uids = {meta.uid for meta, _ in found}
        for standing in before:
            if standing.uid not in uids:
                self._store.forget(standing.name, standing.uid)
        return True
