"""Writes each policy's status: conditions, counts of its pods, its last round. Only what changed is written."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from flowcore.model.constrained import lets_nothing_in
from flowcore.model.policies import Policy, WaitingMode
from thalweg_operator.backoff import Backoff
from thalweg_operator.connection import MERGE_PATCH, Connection, api_path
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.gate_admission import GateAdmission
from thalweg_operator.names import POLICIES_PATH
from thalweg_operator.policies import PolicyStore, Standing
from thalweg_operator.rounds import RoundLoop
from thalweg_operator.state import ClusterState

_EVERY = 1.0
#: Where the API server does not take a status.
_BACKOFF = Backoff(first=1.0, longest=30.0)


@dataclass(slots=True)
class Counts:
    """Pods of one policy."""

    placed: int = 0
    waiting: int = 0
    #: Pods that it selects and another policy governs, with that policy's name.
    lost: int = 0
    lost_to: str = ""


class PolicyStatus:
    """See the module."""

    def __init__(
        self,
        connection: Connection,
        state: ClusterState,
        policies: PolicyStore,
        rounds: RoundLoop,
        gates: GateAdmission,
    ) -> None:
        self._connection, self._state, self._policies, self._rounds = connection, state, policies, rounds
        self._gates = gates
        self._written: dict[str, tuple[str, dict[str, Any]]] = {}
        self._since: dict[tuple[str, str], tuple[str, str]] = {}

    async def run(self) -> None:
        """Writes until cancelled."""
        failures = 0
        refused: set[str] = set()
        while True:
            await asyncio.sleep(_EVERY)
            standings = self._policies.standings
            self._prune(standings)
            if not standings:
                continue
            counts = await self._counts()
            refused.intersection_update(each.name for each in standings)
            # A status that was refused is tried last: it must not keep the others out.
            for standing in sorted(standings, key=lambda each: each.name in refused):
                if not await self._write(standing, counts.get(standing.name, Counts())):
                    refused.add(standing.name)
                    failures += 1
                    await asyncio.sleep(_BACKOFF.pause(failures))
                    break
                refused.discard(standing.name)
            else:
                failures = 0

    def _prune(self, standings: list[Standing]) -> None:
        """Forgets policies that are gone."""
        uids = {standing.uid for standing in standings}
        self._written = {name: each for name, each in self._written.items() if each[0] in uids}
        self._since = {key: each for key, each in self._since.items() if key[0] in uids}

    async def _counts(self) -> dict[str, Counts]:
        result: dict[str, Counts] = {}
        for index, ((namespace, labels, scheduler), population) in enumerate(list(self._state.populations.items())):
            if index % 500 == 499:
                await asyncio.sleep(0)
            found = self._policies.governing(scheduler, labels, self._state.namespaces.get(namespace, ()))
            for place, policy in enumerate(found):
                counts = result.setdefault(policy.name, Counts())
                if place == 0:
                    counts.placed += population.placed
                    counts.waiting += population.waiting
                else:
                    counts.lost += population.placed + population.waiting
                    counts.lost_to = found[0].name
        return result

    async def _write(self, standing: Standing, counts: Counts) -> bool:
        """Whether the API server takes writes; where it does not, the others need not be sent now."""
        status = self._status(standing, counts)
        if self._written.get(standing.name) == (standing.uid, status):
            return True
        body = msgspec.json.encode({"metadata": {"uid": standing.uid}, "status": status})
        path = api_path(POLICIES_PATH, standing.name, "status")
        try:
            await self._connection.request("PATCH", path, body=body, content_type=MERGE_PATCH)
            self._written[standing.name] = (standing.uid, status)
        except Refused as error:
            if error.status == 404:
                self._policies.forget(standing.name, standing.uid)
            elif error.status != 409:  # 409: another object of the same name by now; its event is on the way
                self._connection.outages.failed("policy status", str(error.status), f"{standing.name}: {error.reason}")
                return False
        except ConnectionLost:
            return False  # the connection logs it
        self._connection.outages.over("policy status")
        return True

    def _status(self, standing: Standing, counts: Counts) -> dict[str, Any]:
        if not standing.problem:
            accepted = ("True", "Valid", "The policy is valid.")
        else:
            accepted = ("False", "Invalid", standing.problem)
        if standing.in_force is None:
            ready = ("False", "NeverAccepted", "No version of this policy was valid yet; it governs nothing.")
        elif standing.problem:
            text = f"Generation {standing.in_force_generation}, the last valid one, stays in force."
            ready = ("True", "LastGoodInForce", text)
        elif problem := self._gates.problems.get(standing.name):
            whose = "pods" if standing.in_force.waiting is WaitingMode.GATE else "pods of gangs"
            text = f"In force, but new {whose} are held in kube-scheduler's queue, not gated: {problem}"
            ready = ("True", "HeldNotGated", text)
        elif counts.lost:
            text = (
                f"In force. {counts.lost} of the pods it selects are governed by policies that come first, "
                f"such as {counts.lost_to}."
            )
            ready = ("True", "InForce", text)
        elif standing.in_force.selects.nothing:
            ready = ("False", "SelectsNothing", "spec.selects is empty: the policy governs no pods.")
        else:
            ready = ("True", "InForce", "In force.")
        conditions = [self._condition(standing, "Accepted", *accepted), self._condition(standing, "Ready", *ready)]
        if standing.in_force is not None and standing.in_force.constraints:
            conditions.append(
                self._condition(standing, "Consistent", *self._consistent(standing.uid, standing.in_force))
            )
        status: dict[str, Any] = {
            "observedGeneration": standing.generation,
            "conditions": conditions,
            "pods": {
                "governed": counts.placed + counts.waiting,
                "placed": counts.placed,
                "waiting": counts.waiting,
            },
        }
        report = self._rounds.reports.get(standing.uid)
        if report is not None:
            status["lastRound"] = {
                "number": report.number,
                "finished": _timestamp(report.finished),
                "placed": report.placed,
                "waiting": report.waiting,
                "cost": report.cost,
                "gap": f"{report.gap:.1%}",
                "certified": report.certified,
            }
        return status

    def _consistent(self, uid: str, policy: Policy) -> tuple[str, str, str]:
        """What the constraints say themselves, and what the last round found, if it was with this version."""
        asked, found = self._rounds.contradictions.get(uid, (None, []))
        sentences = [sentence for each in policy.constraints for sentence in lets_nothing_in(each, policy)]
        sentences += found if asked == policy else []
        if not sentences:
            return "True", "NoContradiction", "The constraints rule no waiting pod out."
        text = "; ".join(dict.fromkeys(sentences))
        return "False", "Contradiction", f"The pods concerned wait: {text}."

    def _condition(self, standing: Standing, kind: str, value: str, reason: str, message: str) -> dict[str, Any]:
        since = self._since.get((standing.uid, kind))
        if since is None or since[0] != value:
            since = self._since[(standing.uid, kind)] = (value, _timestamp(datetime.now(UTC).timestamp()))
        return {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": message,
            "observedGeneration": standing.generation,
            "lastTransitionTime": since[1],
        }


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
