"""Writes for the API server which new pods to gate, and that an operator is there that opens the gates.

Both are in the status of each policy that wants gates, as the parameters of a static admission policy
(rights/gates.yaml). The heartbeat is renewed now and then: the API server gates pods only while it is fresh, since
nobody would open a gate that is made while no operator runs. See docs/decisions/0029.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec
import structlog

from flowcore.model.policies import BUILT_IN, by_precedence
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import MERGE_PATCH, ApiClient, api_path
from thalweg_operator.api.rate_limiter import RateLimiter
from thalweg_operator.api.writes.events import timestamp
from thalweg_operator.constants import POLICIES_PATH
from thalweg_operator.errors import ConnectionLost, OperatorError, Refused
from thalweg_operator.policies import auto_waiting
from thalweg_operator.policies.gate_manifests import ADMISSION, GATE_NAME, Manifest, gate_rules, wants_gate
from thalweg_operator.policies.store import PolicyStore
from thalweg_operator.yielding import yielding

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
    """Writes the parameters and the heartbeat of the admission policy that gates pods.

    Attributes:
        problems: why new pods of a policy are not gated, by the policy's name, where they should be.
        gating: names of policies of Auto whose new pods are gated.
    """

    def __init__(
        self,
        api_client: ApiClient,
        policies: PolicyStore,
        policies_of_waiting: Callable[[], Iterable[str]] = lambda: (),
    ) -> None:
        """``policies_of_waiting``: see auto_waiting.py."""
        self._api_client, self._policies = api_client, policies
        self._policies_of_waiting = policies_of_waiting
        self.gating: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        #: What each policy's status says, and since when; None: that its pods are not gated.
        self._written: dict[_Key, tuple[list[Manifest] | None, float]] = {}
        self.problems: dict[str, str] = {}

    def trigger(self) -> None:
        """The policies in force changed: look at once."""
        self._changed.set()

    async def run(self) -> None:
        """Looks until cancelled."""
        failures, pace = 0, RateLimiter(_PER_SECOND, _AT_ONCE)
        while True:
            await pace.wait()
            self._changed.clear()
            failures += 1
            try:
                await self._reconcile()
                failures = 0
                self._api_client.outages.recovered("gates")
            except Refused as error:
                passing = error.starting or error.status in (409, 429)
                self._api_client.outages.failed("gates", str(error.status), error.reason, transient=passing)
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

    async def _reconcile(self) -> None:
        """Says what changed, and the heartbeat.

        Raises:
            Refused: not for the moment.
            ConnectionLost: the API server did not answer.
        """
        problems: dict[str, str] = {}
        await self._choose()
        wanted = self._desired()
        missing = await self._missing_objects() if any(wanted.values()) else ""
        self._written = {key: value for key, value in self._written.items() if key in wanted}
        for key, terms in wanted.items():
            if terms is not None and missing:
                problems[key[0]] = missing
            try:
                await self._write_rules(key, None if missing else terms)
            except Refused as error:
                if error.transient:
                    raise
                problems[key[0]] = error.reason
        self._log_problems(problems)

    async def _choose(self) -> None:
        policies, waiting = [BUILT_IN, *self._policies.accepted], Counter[str]()
        if any(auto_waiting.decides(policy) for policy in policies):
            async for name in yielding(self._policies_of_waiting()):
                waiting[name] += 1
        before, self.gating = self.gating, auto_waiting.gating(policies, waiting, self.gating)
        for name in sorted(self.gating ^ before):
            _log.info("new pods are gated" if name in self.gating else "new pods are not gated any more", policy=name)

    def _desired(self) -> dict[_Key, list[Manifest] | None]:
        ordered = by_precedence([BUILT_IN, *self._policies.accepted])
        return {
            (standing.name, standing.uid): gate_rules(policy, ordered, self.gating)
            if policy is not None and wants_gate(policy, self.gating)
            else None
            for standing in self._policies.records
            for policy in [standing.in_force]
        }

    async def _missing_objects(self) -> str:
        """Why the API server gates nothing, whatever policies say; "" where it does."""
        for kind, path in (("MutatingAdmissionPolicy", RULES_PATH), ("MutatingAdmissionPolicyBinding", BINDINGS_PATH)):
            try:
                await self._api_client.request("GET", f"{path}/{GATE_NAME}")
            except Refused as error:
                if error.status == 404:
                    return f"there is no {kind} {GATE_NAME} (Kubernetes 1.36; kubectl apply -f rights/gates.yaml)"
                if error.transient:
                    raise
                return error.reason
        return ""

    async def _write_rules(self, key: _Key, rules: list[Manifest] | None) -> None:
        now = time.monotonic()
        before = self._written.get(key)
        # A policy that never wanted a gate may have done so before this process was started.
        if before is not None and before[0] == rules and (rules is None or now - before[1] < _LOOK / 2):
            return
        await self._write(key, rules)
        self._written[key] = (rules, now)

    async def _write(self, key: _Key, rules: list[Manifest] | None) -> None:
        name, uid = key
        said = None if rules is None else {"heartbeat": timestamp(), "order": rules}
        body = msgspec.json.encode({"metadata": {"uid": uid}, "status": {"gate": said}})
        try:
            path = api_path(POLICIES_PATH, name, "status")
            await self._api_client.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        except Refused as error:
            if error.status not in (404, 409):  # the policy is gone, or another one has its name by now
                raise

    def _log_problems(self, problems: dict[str, str]) -> None:
        for policy, problem in problems.items():
            if self.problems.get(policy) != problem:
                _log.warning(
                    "new pods are not gated; they are held in kube-scheduler's queue instead",
                    policy=policy,
                    problem=problem,
                )
        self.problems = problems
