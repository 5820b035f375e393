"""Lists all FlowSchedulingPolicy objects regularly: kopf does not report deletions that its watch missed."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
import structlog

from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.constants import POLICIES_PATH
from thalweg_operator.errors import OperatorError, Refused
from thalweg_operator.policies.store import PolicyStore

_log = structlog.get_logger()
#: Seconds between two lists of all policies.
_RESYNC = 10.0
#: Seconds between tries to list them while a caller waits for that.
_BACKOFF = Backoff(first=0.5, longest=5.0)


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


#: Seconds in which a new leader lists the policies. One slow request (30 s) is waited for: policies are hard rules.
LISTED_WITHIN: Final = 35.0
_lists, _names, _specs = JsonReader(_List), JsonReader(_Named), JsonReader(_Specified)


class PolicyResync:
    """Keeps the store equal to the API server.

    Attributes:
        last_confirmed: the event loop's time when the last good list began; None before.
    """

    def __init__(self, api_client: ApiClient, store: PolicyStore, bad_input: BadInput) -> None:
        self._api_client, self._store, self._bad_input = api_client, store, bad_input
        self._crd_installed: bool | None = None
        self.last_confirmed: float | None = None

    async def run(self) -> None:
        """Lists every ten seconds until cancelled.

        kopf reads the API server's discovery once after a CRD changes. Where discovery was not updated yet at that
        moment, kopf does not watch policies, and only these lists see them.
        """
        while True:
            await self.once()
            await asyncio.sleep(_RESYNC)

    def age(self) -> float:
        """Seconds since ``last_confirmed``; infinite before the first good list."""
        return float("inf") if self.last_confirmed is None else asyncio.get_running_loop().time() - self.last_confirmed

    async def until_listed(self) -> None:
        """Lists until that succeeds."""
        failures = 0
        while not await self.once():
            failures += 1
            await asyncio.sleep(_BACKOFF.pause(failures))

    async def catch_up(self, since: float) -> None:
        """Returns when they were listed after ``since``, or could not be listed: then what is known stays in force.

        The previous leader would have gone on with what it knew, too (``CatchUp``).

        Args:
            since: a time of the event loop, now or earlier: when the lease was acquired.
        """
        if self.last_confirmed is not None and self.last_confirmed >= since:
            return
        try:
            async with asyncio.timeout(LISTED_WITHIN):
                await self.until_listed()
        except TimeoutError:
            _log.warning("leading although the policies could not be listed again")

    async def once(self) -> bool:
        """Lists once; returns whether that succeeded. A failure is logged."""
        begun = asyncio.get_running_loop().time()
        try:
            present = await self.resync()
        except Refused as error:
            self._failed(str(error.status), error.reason, passing=error.starting or error.status == 429)
            return False
        except UnreadableJson as error:
            self._failed("not understood", f"not a list of policies: {error}")
            return False
        except OperatorError:
            return False  # the connection logs it
        self.last_confirmed = begun
        self._api_client.outages.recovered("policies")
        if present != self._crd_installed:
            if present:
                _log.info("FlowSchedulingPolicy is served", policies=len(self._store.records))
            else:
                _log.warning(
                    "FlowSchedulingPolicy is not installed; the built-in default policy is in force until it is",
                    hint="kubectl apply -f crds/",
                )
            self._crd_installed = present
        return True

    def _failed(self, cause: str, problem: str, *, passing: bool = False) -> None:
        self._api_client.outages.failed("policies", cause, problem, transient=passing)

    async def resync(self) -> bool:
        """Makes the store equal to the API server; returns False where the CRD is not installed.

        Raises:
            OperatorError: the API server could not be asked.
            UnreadableJson: the answer is no list of policies; the store is unchanged.
        """
        # Events that come during the request are newer than the list.
        before, forgotten = self._store.records, self._store.forgotten
        try:
            raw = await self._api_client.request("GET", POLICIES_PATH)
        except Refused as error:
            if error.status != 404:
                raise
            for standing in before:
                self._store.forget(standing.name, standing.uid)
            return False
        listed = [(_names.read(item).metadata, item) for item in _lists.read(raw).items]
        gone = self._store.gone_since(forgotten)
        for meta, item in listed:
            if meta.uid in gone:
                continue
            try:
                spec = _specs.read(item).spec
            except UnreadableJson as error:
                self._bad_input.refuse("policy", "spec", meta.name, str(error))
                continue  # the last version stays in force
            self._store.offer(meta.name, meta.uid, meta.generation, spec)
        uids = {meta.uid for meta, _ in listed}
        for standing in before:
            if standing.uid not in uids:
                self._store.forget(standing.name, standing.uid)
        return True
