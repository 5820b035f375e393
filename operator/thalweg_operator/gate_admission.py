"""Keeps the API server's gates as the policies want them: made, mended and removed.

Each look compares what is there with what is wanted, so restarts and other people's edits are put right by the same few
lines. Each look writes a heartbeat too, into the status of each policy that gates pods: the API server gates pods only
while it is fresh, since nobody would open a gate that is made while no operator runs. See docs/decisions/0029.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec
import structlog

from thalweg_operator.connection import MERGE_PATCH, Connection, api_path
from thalweg_operator.errors import ConnectionLost, OperatorError, Refused
from thalweg_operator.events import timestamp
from thalweg_operator.gates import ADMISSION, GATE_LABEL, SYSTEM_NAMESPACES, Gate, Manifest, gate, wants_gate
from thalweg_operator.names import POLICIES_PATH
from thalweg_operator.policies import PolicyStore

_log = structlog.get_logger()
#: Seconds between two looks when no policy changes.
_LOOK = 10.0
#: Seconds that the heartbeats may take to be taken back when the operator ends.
_STOP = 3.0
#: Seconds after which what went wrong for the moment is tried again.
_AGAIN = 1.0
RULES_PATH = f"/apis/{ADMISSION}/mutatingadmissionpolicies"
BINDINGS_PATH = f"/apis/{ADMISSION}/mutatingadmissionpolicybindings"


class _List(msgspec.Struct):
    items: list[dict[str, Any]] | None


class GateAdmission:
    """See the module.

    Attributes:
        problems: why new pods of a policy are not gated, by the policy's name, where they should be.
    """

    def __init__(
        self, connection: Connection, policies: PolicyStore, spared: Iterable[str] = SYSTEM_NAMESPACES
    ) -> None:
        """An upkeep.

        Args:
            spared: namespaces whose pods are never gated.
        """
        self._connection, self._policies, self._spared = connection, policies, tuple(spared)
        #: When the heartbeat of each policy, by name and uid, was written last.
        self._beaten: dict[tuple[str, str], float] = {}
        self._changed = asyncio.Event()
        self.problems: dict[str, str] = {}

    def touch(self) -> None:
        """The policies in force changed: look at once."""
        self._changed.set()

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            self._changed.clear()
            pause = _LOOK
            wanted = self._wanted()
            try:
                self._say(await self._look(wanted))
            except Refused as error:
                if _passes(error):
                    pause = _AGAIN
                else:
                    self._say({each.policy: _in_words(error) for each in wanted})
            except ConnectionLost as error:
                _log.warning("gates not looked at", problem=str(error))
                pause = _AGAIN
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()

    async def stop(self) -> None:
        """Takes the heartbeats back: from now on new pods are not gated."""
        beaten, self._beaten = self._beaten, {}
        try:
            async with asyncio.timeout(_STOP):
                for name, uid in beaten:
                    await self._write_heartbeat(name, uid, None)
        except (OperatorError, TimeoutError) as error:
            _log.warning("heartbeats not taken back", problem=str(error) or "no answer in time")

    async def remove_all(self) -> tuple[int, int]:
        """Removes all that is ours; how many objects there were, and how many are left.

        Raises:
            Refused, ConnectionLost: the API server cannot be asked.
        """
        before = await self._ours()
        for path, found in before.items():
            await self._remove(path, found, set())
        after = await self._ours() if any(before.values()) else {}
        return sum(map(len, before.values())), sum(map(len, after.values()))

    async def _ours(self) -> dict[str, dict[str, Manifest]]:
        """By their paths, what does the gating first."""
        return {
            path: {name: each for name, each in (await self._list(path)).items() if _is_ours(each)}
            for path in (BINDINGS_PATH, RULES_PATH)
        }

    async def _beat(self, wanted: list[Gate]) -> None:
        now = time.monotonic()
        policies = {(each.policy, each.uid) for each in wanted}
        self._beaten = {key: at for key, at in self._beaten.items() if key in policies}
        for key in policies:
            if now - self._beaten.get(key, float("-inf")) >= _LOOK / 2:
                await self._write_heartbeat(*key, timestamp())
                self._beaten[key] = now

    async def _write_heartbeat(self, name: str, uid: str, value: str | None) -> None:
        body = msgspec.json.encode({"metadata": {"uid": uid}, "status": {"heartbeat": value}})
        try:
            path = f"{POLICIES_PATH}/{name}/status"
            await self._connection.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        except Refused as error:
            if error.status not in (404, 409):  # the policy is gone, or another one has its name by now
                raise

    def _wanted(self) -> list[Gate]:
        ordered = self._policies.ordered
        return [
            gate(standing.in_force, standing.uid, ordered, self._spared)
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
        """
        rules, bindings = await self._list(RULES_PATH), await self._list(BINDINGS_PATH)
        problems: dict[str, str] = {}
        await self._beat(wanted)
        for each in wanted:
            try:
                await self._make(RULES_PATH, each.rule, rules.get(each.name))
                await self._make(BINDINGS_PATH, each.binding, bindings.get(each.name))
            except Refused as error:
                if _passes(error):
                    raise
                problems[each.policy] = _in_words(error)
        names = {each.name for each in wanted}
        await self._remove(BINDINGS_PATH, bindings, names)
        await self._remove(RULES_PATH, rules, names)
        return problems

    async def _list(self, path: str) -> dict[str, Manifest]:
        """All there are, by name: somebody may have taken our label off one of ours."""
        raw = await self._connection.request("GET", path)
        return {each["metadata"]["name"]: each for each in msgspec.json.decode(raw, type=_List).items or ()}

    async def _make(self, path: str, wanted: Manifest, there: Manifest | None) -> None:
        """Creates what is missing, puts right what differs."""
        name = wanted["metadata"]["name"]
        if there is None:
            await self._connection.request("POST", path, body=msgspec.json.encode(wanted))
            _log.info("gate made", kind=wanted["kind"], name=name)
        elif not _alike(there, wanted):
            metadata = {**wanted["metadata"], "resourceVersion": there["metadata"]["resourceVersion"]}
            body = msgspec.json.encode({**wanted, "metadata": metadata})
            await self._connection.request("PUT", api_path(path, name), body=body)
            _log.info("gate put right", kind=wanted["kind"], name=name)

    async def _remove(self, path: str, there: dict[str, Manifest], wanted: set[str]) -> None:
        for name, found in there.items():
            if name in wanted or not _is_ours(found):
                continue
            try:
                await self._connection.request("DELETE", api_path(path, name))
                _log.info("gate removed", path=path, name=name)
            except Refused as error:
                if _passes(error):
                    raise
                if error.status != 404:  # its policy is gone, and the garbage collector was faster
                    _log.warning("gate not removed", path=path, name=name, problem=error.reason)


def _is_ours(found: Manifest) -> bool:
    return GATE_LABEL in found["metadata"].get("labels", {})


def _alike(there: Manifest, wanted: Manifest) -> bool:
    if there["spec"] != wanted["spec"]:
        return False
    return all(there["metadata"].get(key) == wanted["metadata"][key] for key in ("labels", "ownerReferences"))


def _passes(error: Refused) -> bool:
    """Somebody else wrote first, or the server is busy."""
    return error.status in (409, 429) or error.status >= 500


def _in_words(error: Refused) -> str:
    if error.status == 404:
        return f"the API server does not serve MutatingAdmissionPolicy ({ADMISSION}, Kubernetes 1.36)"
    return error.reason
