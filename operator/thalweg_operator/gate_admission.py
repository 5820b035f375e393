"""Tells the API server which new pods to gate, and that somebody is there who opens the gates.

Both are in the status of each policy that wants gates, as the parameters of a static admission policy
(rights/gates.yaml). The heartbeat is renewed now and then: the API server gates pods only while it is fresh, since
nobody would open a gate that is made while no operator runs. See docs/decisions/0029.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import msgspec
import structlog

from thalweg_operator.backoff import Backoff
from thalweg_operator.connection import MERGE_PATCH, Connection, api_path
from thalweg_operator.errors import ConnectionLost, OperatorError, Refused
from thalweg_operator.events import timestamp
from thalweg_operator.gates import ADMISSION, GATE_NAME, Manifest, gate, wants_gate
from thalweg_operator.names import POLICIES_PATH
from thalweg_operator.pace import Pace
from thalweg_operator.policies import PolicyStore

_log = structlog.get_logger()
#: Seconds between two looks when no policy changes, and so between two heartbeats.
_LOOK = 10.0
#: Between tries where something goes wrong for the moment.
_BACKOFF = Backoff(first=1.0, longest=10.0)
#: Looks a second in the long run, and at once, however often policies change.
_PER_SECOND, _AT_ONCE = 1.5, 3
#: Seconds that the heartbeats may take to be taken back when the operator ends.
_STOP = 3.0
RULES_PATH = f"/apis/{ADMISSION}/mutatingadmissionpolicies"
BINDINGS_PATH = f"/apis/{ADMISSION}/mutatingadmissionpolicybindings"

#: A policy's name and uid.
_Key = tuple[str, str]


class GateAdmission:
    """See the module.

    Attributes:
        problems: why new pods of a policy are not gated, by the policy's name, where they should be.
    """

    def __init__(self, connection: Connection, policies: PolicyStore) -> None:
        self._connection, self._policies = connection, policies
        self._changed = asyncio.Event()
        #: What each policy's status says, and since when; None: that its pods are not gated.
        self._written: dict[_Key, tuple[list[Manifest] | None, float]] = {}
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
            failures += 1
            try:
                await self._look()
                failures = 0
                self._connection.outages.over("gates")
            except Refused as error:
                passing = error.status in (409, 429)
                self._connection.outages.failed("gates", str(error.status), error.reason, passing=passing)
            except ConnectionLost:
                pass  # the connection logs it
            with suppress(TimeoutError):
                async with asyncio.timeout(_BACKOFF.pause(failures) if failures else _LOOK):
                    await self._changed.wait()

    async def stop(self) -> None:
        """From now on new pods are not gated."""
        written, self._written = self._written, {}
        try:
            async with asyncio.timeout(_STOP):
                for key, (terms, _) in written.items():
                    if terms is not None:
                        await self._write(key, None)
        except (OperatorError, TimeoutError) as error:
            _log.warning("heartbeats not taken back", problem=str(error) or "no answer in time")

    async def _look(self) -> None:
        """Says what changed, and the heartbeat.

        Raises:
            Refused: not for the moment.
            ConnectionLost: the API server did not answer.
        """
        problems: dict[str, str] = {}
        wanted = self._wanted()
        missing = await self._missing() if any(wanted.values()) else ""
        self._written = {key: value for key, value in self._written.items() if key in wanted}
        for key, terms in wanted.items():
            if terms is not None and missing:
                problems[key[0]] = missing
            try:
                await self._tell(key, terms)
            except Refused as error:
                if _passes(error):
                    raise
                problems[key[0]] = error.reason
        self._say(problems)

    def _wanted(self) -> dict[_Key, list[Manifest] | None]:
        ordered = self._policies.ordered
        return {
            (standing.name, standing.uid): gate(policy, ordered) if policy is not None and wants_gate(policy) else None
            for standing in self._policies.standings
            for policy in [standing.in_force]
        }

    async def _missing(self) -> str:
        """Why the API server gates nothing, whatever policies say; "" where it does."""
        for kind, path in (("MutatingAdmissionPolicy", RULES_PATH), ("MutatingAdmissionPolicyBinding", BINDINGS_PATH)):
            try:
                await self._connection.request("GET", f"{path}/{GATE_NAME}")
            except Refused as error:
                if error.status == 404:
                    return f"there is no {kind} {GATE_NAME} (Kubernetes 1.36; kubectl apply -f rights/gates.yaml)"
                if _passes(error):
                    raise
                return error.reason
        return ""

    async def _tell(self, key: _Key, terms: list[Manifest] | None) -> None:
        now = time.monotonic()
        before = self._written.get(key)
        # A policy that never wanted a gate may have done so before this process was started.
        if before is not None and before[0] == terms and (terms is None or now - before[1] < _LOOK / 2):
            return
        await self._write(key, terms)
        self._written[key] = (terms, now)

    async def _write(self, key: _Key, terms: list[Manifest] | None) -> None:
        name, uid = key
        said = None if terms is None else {"heartbeat": timestamp(), "order": terms}
        body = msgspec.json.encode({"metadata": {"uid": uid}, "status": {"gate": said}})
        try:
            path = api_path(POLICIES_PATH, name, "status")
            await self._connection.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        except Refused as error:
            if error.status not in (404, 409):  # the policy is gone, or another one has its name by now
                raise

    def _say(self, problems: dict[str, str]) -> None:
        for policy, problem in problems.items():
            if self.problems.get(policy) != problem:
                _log.warning(
                    "new pods are not gated; they are held in kube-scheduler's queue instead",
                    policy=policy,
                    problem=problem,
                )
        self.problems = problems


def _passes(error: Refused) -> bool:
    """The server is busy."""
    return error.status == 429 or error.status >= 500
