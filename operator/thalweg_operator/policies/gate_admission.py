"""Writes for the API server which new pods to gate, and that an operator is there that opens the gates.

Both are in one object, NewPodRules ``thalweg``, the parameter of a static admission policy (rights/gates.yaml). The
heartbeat is renewed now and then: the API server gates pods only while it is fresh, since nobody would open a gate that
is made while no operator runs. See docs/decisions/0029 and 0166.
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
from thalweg_operator.api.client import APPLY_PATCH, ApiClient, api_path
from thalweg_operator.api.rate_limiter import RateLimiter
from thalweg_operator.api.writes.events import timestamp
from thalweg_operator.constants import COMPONENT
from thalweg_operator.errors import ConnectionLost, OperatorError, Refused
from thalweg_operator.policies import auto_waiting
from thalweg_operator.policies.gate_manifests import (
    ADMISSION,
    GATE_NAME,
    MOST_BYTES,
    MOST_RULES,
    NEW_POD_RULES,
    RULES_NAME,
    Manifest,
    gates,
    new_pod_rules,
    wants_gate,
    wants_mark,
)
from thalweg_operator.policies.store import PolicyStore
from thalweg_operator.yielding import yielding

_log = structlog.get_logger()
#: Seconds between two looks when no policy changes, and so between two heartbeats.
_LOOK = 10.0
#: Between tries where something goes wrong for the moment.
_BACKOFF = Backoff(first=1.0, longest=10.0)
#: Looks a second in the long run, and at once, however often policies change.
_PER_SECOND, _AT_ONCE = 1.5, 3
#: Seconds that the heartbeat may take to be taken back when the operator ends.
_STOP = 3.0
NEW_POD_RULES_PATH = api_path(NEW_POD_RULES.paths[0], RULES_NAME)
RULES_PATH = f"/apis/{ADMISSION}/mutatingadmissionpolicies"
BINDINGS_PATH = f"/apis/{ADMISSION}/mutatingadmissionpolicybindings"

_BEYOND = (
    f"the rules of the policies that come first fill NewPodRules {RULES_NAME} ({MOST_RULES:,} rules, "
    f"{MOST_BYTES // 1024} KiB)"
)
_NO_KIND = f"the API server does not serve {NEW_POD_RULES.kind} (kubectl apply --server-side -f crds/)"
_OLD = f"{GATE_NAME} is of an older version of Thalweg (kubectl apply -f rights/gates.yaml)"


class GateAdmission:
    """Writes the rules and the heartbeat that the admission policy reads.

    Attributes:
        problems: why new pods of a policy are not gated or not marked, by the policy's name, where they should be.
        marks: whether new pods of policies of delivery Extender get our mark.
        gating: names of policies of Auto whose new pods are gated.
    """

    def __init__(
        self,
        api_client: ApiClient,
        policies: PolicyStore,
        policies_of_waiting: Callable[[], Iterable[str]] = lambda: (),
        *,
        marks: bool = False,
    ) -> None:
        """``policies_of_waiting``: see auto_waiting.py."""
        self._api_client, self._policies = api_client, policies
        self._policies_of_waiting = policies_of_waiting
        self.marks = marks
        self.gating: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        #: What the object says, and since when; None: what an operator before this one wrote.
        self._written: tuple[list[Manifest], float] | None = None
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
        written, self._written = self._written, None
        if written is None or not any(map(gates, written[0])):
            return
        try:
            async with asyncio.timeout(_STOP):
                await self._write(written[0], beats=False)
        except (OperatorError, TimeoutError) as error:
            _log.warning("heartbeat not taken back", problem=str(error) or "no answer in time")

    async def _reconcile(self) -> None:
        """Says what changed, and the heartbeat.

        Raises:
            Refused: not for the moment.
            ConnectionLost: the API server did not answer.
        """
        await self._choose()
        ordered = by_precedence([BUILT_IN, *self._policies.accepted])
        rules, beyond = new_pod_rules(ordered, self.gating, marks=self.marks)
        in_force = [(record.name, record.in_force) for record in self._policies.records if record.in_force is not None]
        wanting = [
            name for name, policy in in_force if wants_gate(policy, self.gating) or (self.marks and wants_mark(policy))
        ]
        problem = await self._missing_objects() if wanting else ""
        if not problem:
            problem = await self._write_rules(rules)
        if problem:
            self._log_problems(dict.fromkeys(wanting, problem))
        else:
            self._log_problems({name: _BEYOND for name in wanting if name in beyond})

    async def _choose(self) -> None:
        policies, waiting = [BUILT_IN, *self._policies.accepted], Counter[str]()
        if any(auto_waiting.decides(policy) for policy in policies):
            async for name in yielding(self._policies_of_waiting()):
                waiting[name] += 1
        before, self.gating = self.gating, auto_waiting.gating(policies, waiting, self.gating)
        for name in sorted(self.gating ^ before):
            _log.info("new pods are gated" if name in self.gating else "new pods are not gated any more", policy=name)

    async def _missing_objects(self) -> str:
        """Why the API server gates nothing, whatever policies say; "" where it does."""
        for kind, path in (("MutatingAdmissionPolicy", RULES_PATH), ("MutatingAdmissionPolicyBinding", BINDINGS_PATH)):
            try:
                answer = await self._api_client.request("GET", f"{path}/{GATE_NAME}")
            except Refused as error:
                if error.status == 404:
                    return f"there is no {kind} {GATE_NAME} (Kubernetes 1.36; kubectl apply -f rights/gates.yaml)"
                if error.transient:
                    raise
                return error.reason
            if b"paramKind" in answer and NEW_POD_RULES.kind.encode() not in answer:
                return f"the {kind} {_OLD}"
        return ""

    async def _write_rules(self, rules: list[Manifest]) -> str:
        """Writes what changed, and the heartbeat when it is due. Returns why the API server refuses it; "": not.

        Raises:
            Refused: not for the moment.
            ConnectionLost: the API server did not answer.
        """
        now, before = time.monotonic(), self._written
        # What gated nothing in this process may have gated pods before it was started.
        if before is not None and before[0] == rules and (not rules or now - before[1] < _LOOK / 2):
            return ""
        try:
            await self._write(rules, beats=any(map(gates, rules)))
        except Refused as error:
            if error.transient:
                raise
            problem = _NO_KIND if error.status == 404 else error.reason
        else:
            problem = ""
        if not problem or not rules:
            self._written = (rules, now)
        return problem

    async def _write(self, rules: list[Manifest], *, beats: bool) -> None:
        """By server-side apply: it makes a missing object, so the right to create is limited to the name."""
        said = {
            "apiVersion": NEW_POD_RULES.api_version,
            "kind": NEW_POD_RULES.kind,
            "metadata": {"name": RULES_NAME},
            **({"heartbeat": timestamp()} if beats else {}),
            "order": rules,
        }
        params = {"fieldManager": COMPONENT, "force": "true"}
        body = msgspec.json.encode(said)
        await self._api_client.request("PATCH", NEW_POD_RULES_PATH, body=body, content_type=APPLY_PATCH, params=params)

    def _log_problems(self, problems: dict[str, str]) -> None:
        for policy, problem in problems.items():
            if self.problems.get(policy) == problem:
                continue
            if self.marks:
                _log.warning(
                    "new pods are not marked; kube-scheduler places them without a plan",
                    policy=policy,
                    problem=problem,
                )
            else:
                _log.warning(
                    "new pods are not gated; they are held in kube-scheduler's queue instead",
                    policy=policy,
                    problem=problem,
                )
        self.problems = problems
