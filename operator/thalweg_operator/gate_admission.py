"""Keeps the API server's gates as the policies want them: made, mended and removed.

Nothing is remembered: each look compares what is there with what is wanted, so restarts and other people's edits are
put right by the same few lines.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
import structlog

from thalweg_operator.backoff import Backoff
from thalweg_operator.connection import Connection
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.gates import ADMISSION, GATE_LABEL, Gate, Manifest, gate, wants_gate
from thalweg_operator.json_reading import NotReadable, Reader
from thalweg_operator.pace import Pace
from thalweg_operator.policies import PolicyStore

_log = structlog.get_logger()
#: Seconds between two looks when no policy changes.
_LOOK = 10.0
#: Between tries where something goes wrong for the moment.
_BACKOFF = Backoff(first=1.0, longest=10.0)
#: Looks a second in the long run, and at once, however often policies change.
_PER_SECOND, _AT_ONCE = 1.5, 3
_RULES = f"/apis/{ADMISSION}/mutatingadmissionpolicies"
_BINDINGS = f"/apis/{ADMISSION}/mutatingadmissionpolicybindings"


class _List(msgspec.Struct):
    items: list[dict[str, Any]]


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    resource_version: str
    labels: dict[str, str] | None = None


class _Named(msgspec.Struct):
    metadata: _Meta


_lists = Reader(_List)


class GateAdmission:
    """See the module.

    Attributes:
        problems: why new pods of a policy are not gated, by the policy's name, where they should be.
    """

    def __init__(self, connection: Connection, policies: PolicyStore) -> None:
        self._connection, self._policies = connection, policies
        self._changed = asyncio.Event()
        self.problems: dict[str, str] = {}

    def touch(self) -> None:
        """The policies in force changed: look at once."""
        self._changed.set()

    async def run(self) -> None:
        """Looks until cancelled."""
        failures, pace = 0, Pace(_PER_SECOND, _AT_ONCE)
        while True:
            await pace.turn()
            self._changed.clear()
            wanted = self._wanted()
            failures += 1
            try:
                self._say(await self._look(wanted))
                failures = 0
                self._connection.outages.over("gates")
            except Refused as error:
                if _passes(error):
                    self._failed(str(error.status), error.reason, passing=error.status in (409, 429))
                else:
                    failures = 0
                    self._say({each.policy: _in_words(error) for each in wanted})
            except NotReadable as error:
                self._failed("not understood", str(error))
            except ConnectionLost:
                pass  # the connection logs it
            with suppress(TimeoutError):
                async with asyncio.timeout(_BACKOFF.pause(failures) if failures else _LOOK):
                    await self._changed.wait()

    def _failed(self, cause: str, problem: str, *, passing: bool = False) -> None:
        self._connection.outages.failed("gates", cause, problem, passing=passing)

    def _wanted(self) -> list[Gate]:
        ordered = self._policies.ordered
        return [
            gate(standing.in_force, standing.uid, ordered)
            for standing in self._policies.standings
            if standing.in_force is not None and wants_gate(standing.in_force)
        ]

    def _say(self, problems: dict[str, str]) -> None:
        for policy, problem in problems.items():
            if self.problems.get(policy) != problem:
                _log.warning(
                    "new pods are not gated; they are held in kube-scheduler's queue instead",
                    policy=policy,
                    problem=problem,
                )
        self.problems = problems

    async def _look(self, wanted: list[Gate]) -> dict[str, str]:
        """What could not be made, and why.

        Raises:
            Refused: the API server cannot be asked, or only for the moment not.
            ConnectionLost: it did not answer.
            NotReadable: an answer is not what an API server says.
        """
        rules, bindings = await self._list(_RULES), await self._list(_BINDINGS)
        problems: dict[str, str] = {}
        for each in wanted:
            try:
                await self._make(_RULES, each.rule, rules.get(each.name))
                await self._make(_BINDINGS, each.binding, bindings.get(each.name))
            except Refused as error:
                if _passes(error):
                    raise
                problems[each.policy] = _in_words(error)
        names = {each.name for each in wanted}
        await self._remove(_BINDINGS, bindings, names)
        await self._remove(_RULES, rules, names)
        return problems

    async def _list(self, path: str) -> dict[str, Manifest]:
        """All there are, by name: somebody may have taken our label off one of ours."""
        raw = await self._connection.request("GET", path)
        found = {}
        for each in _lists.read(raw).items:
            try:
                found[msgspec.convert(each, _Named).metadata.name] = each
            except msgspec.ValidationError as error:
                raise NotReadable(f"{path}: {error}") from error
        return found

    async def _make(self, path: str, wanted: Manifest, there: Manifest | None) -> None:
        """Creates what is missing, puts right what differs."""
        name = wanted["metadata"]["name"]
        if there is None:
            await self._connection.request("POST", path, body=msgspec.json.encode(wanted))
            _log.info("gate made", kind=wanted["kind"], name=name)
        elif not _alike(there, wanted):
            metadata = {**wanted["metadata"], "resourceVersion": there["metadata"]["resourceVersion"]}
            body = msgspec.json.encode({**wanted, "metadata": metadata})
            await self._connection.request("PUT", f"{path}/{name}", body=body)
            _log.info("gate put right", kind=wanted["kind"], name=name)

    async def _remove(self, path: str, there: dict[str, Manifest], wanted: set[str]) -> None:
        for name, found in there.items():
            if name in wanted or GATE_LABEL not in (found["metadata"].get("labels") or {}):
                continue
            try:
                await self._connection.request("DELETE", f"{path}/{name}")
                _log.info("gate removed", path=path, name=name)
            except Refused as error:
                if _passes(error):
                    raise
                if error.status != 404:  # its policy is gone, and the garbage collector was faster
                    _log.warning("gate not removed", path=path, name=name, problem=error.reason)


def _alike(there: Manifest, wanted: Manifest) -> bool:
    if there.get("spec") != wanted["spec"]:
        return False
    return all(there["metadata"].get(key) == wanted["metadata"][key] for key in ("labels", "ownerReferences"))


def _passes(error: Refused) -> bool:
    """Somebody else wrote first, or the server is busy."""
    return error.status in (409, 429) or error.status >= 500


def _in_words(error: Refused) -> str:
    if error.status == 404:
        return f"the API server does not serve MutatingAdmissionPolicy ({ADMISSION}, Kubernetes 1.36)"
    return error.reason
